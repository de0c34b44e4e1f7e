#!/usr/bin/env bash
# The high-throughput profile of the reference deployment (Qwen3.5-397B-A17B W8A8 on one node), environment included, with avocet in place
# of vllm. The command line is the published one, spelling and all; what has no effect yet is named in the start-up report.
#
#   AVOCET_MODEL=/models/Qwen3.5-397B-A17B-w8a8-mtp examples/high_throughput.sh [more flags]
#
# The bundled int8 model is of the same kind:
#   AVOCET_MODEL=models/demo-w8a8 examples/high_throughput.sh
#
# Settings of the host that the recipe makes beforehand (they need root and are left to the operator): CPU governor performance,
# vm.swappiness=0, kernel.numa_balancing=0.
set -euo pipefail

avocet=${AVOCET:-avocet}
model=${AVOCET_MODEL:?the folder of the checkpoint}
port=${AVOCET_PORT:-8010}

export ASCEND_RT_VISIBLE_DEVICES=0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
export PYTORCH_NPU_ALLOC_CONF=expandable_segments:True
export HCCL_OP_EXPANSION_MODE=AIV
export HCCL_BUFFSIZE=1024
export OMP_NUM_THREADS=1
export TASK_QUEUE_ENABLE=1
export VLLM_ASCEND_ENABLE_FUSED_MC2=1
export VLLM_ASCEND_ENABLE_FLASHCOMM1=1

exec "$avocet" serve "$model" \
  --served-model-name qwen3.5 \
  --host 0.0.0.0 \
  --port "$port" \
  --data-parallel-size 1 \
  --tensor-parallel-size 16 \
  --enable-expert-parallel \
  --max-model-len 5000 \
  --max-num-batched-tokens 16384 \
  --max-num-seqs 128 \
  --gpu-memory-utilization 0.9 \
  --compilation-config '{"cudagraph_capture_sizes": [1, 4, 8, 12, 16, 24, 32, 48, 56, 64, 72, 84, 96, 108, 112, 128, 160, 172, 196, 200, 212, 232, 256, 272, 288, 312, 328, 344, 360, 384, 400, 416, 432, 448, 480, 512], "cudagraph_mode": "FULL_DECODE_ONLY"}' \
  --speculative_config '{"method": "qwen3_5_mtp", "num_speculative_tokens": 3, "enforce_eager": true}' \
  --trust-remote-code \
  --async-scheduling \
  --allowed-local-media-path / \
  --quantization ascend \
  --mm-processor-cache-gb 0 \
  --additional-config '{"enable_cpu_binding": true}' \
  "$@"
