"""Whole steps and whole starts on published shapes, as JSON lines: what, value, unit, roof of the same run, ratio, goal.

usage: steps.py --build build/release [--only TEXT]

Weights are dummies (no file of the family is needed); the large shapes are cut to the layers that fit. A decode step is compared with
reading the bytes it must read, at the rate that memory gives around every iteration. The start is that of `avocet serve` on a file of the
0.8B shape which this script writes below build/ (1.5 GB) and leaves in the page cache."""

import argparse
import contextlib
import json
import os
import pathlib
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
INTERVAL = 4  # every fourth layer is attention


def config(hidden, layers, heads, kv_heads, value_heads, intermediate=0, experts=0, top_k=0, expert_intermediate=0, shared=0, tied=True):
    """config.json of a text-only member of the family."""
    kinds = ["full_attention" if i % INTERVAL == INTERVAL - 1 else "linear_attention" for i in range(layers)]
    text = {
        "model_type": "qwen3_5_moe_text" if experts else "qwen3_5_text", "hidden_size": hidden, "num_hidden_layers": layers,
        "layer_types": kinds, "full_attention_interval": INTERVAL, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "head_dim": 256, "attn_output_gate": True, "linear_num_key_heads": 16, "linear_num_value_heads": value_heads,
        "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "vocab_size": 248320, "hidden_act": "silu",
        "rms_norm_eps": 1e-6, "max_position_embeddings": 262144, "eos_token_id": 248044, "dtype": "bfloat16", "tie_word_embeddings": tied,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25, "mrope_interleaved": True,
                            "mrope_section": [11, 11, 10]},
    }
    if experts:
        text |= {"num_experts": experts, "num_experts_per_tok": top_k, "moe_intermediate_size": expert_intermediate,
                 "shared_expert_intermediate_size": shared}
    else:
        text["intermediate_size"] = intermediate
    name = "Qwen3_5MoeForConditionalGeneration" if experts else "Qwen3_5ForConditionalGeneration"
    return {"architectures": [name], "model_type": "qwen3_5_moe" if experts else "qwen3_5", "text_config": text, "tie_word_embeddings": tied}


SHAPES = {
    "0.8B": config(1024, 24, 8, 2, 16, 3584),
    "2B": config(2048, 24, 8, 2, 16, 6144),
    "4B": config(2560, 32, 16, 4, 32, 9216),
    "35B-A3B, 4 of 40 layers": config(2048, 4, 16, 2, 32, experts=256, top_k=8, expert_intermediate=512, shared=512, tied=False),
}
FORMATS = {"bf16": [], "int8": ["--quantization", "int8"]}
# Share of the read roof that a decode step must reach, by (format, shape, sequences).
DECODE_GOALS = {("bf16", "0.8B", 1): 0.70, ("int8", "0.8B", 1): 0.78}
# Of the time that the products alone would take.
PROMPT_GOALS = {("int8", "0.8B"): 0.60}


class Bench:
    def __init__(self, build, only):
        self.binary = str(ROOT / build / "bin/avocet")
        self.bin_dir = ROOT / build / "bin"
        self.only = only

    def wants(self, what):
        return self.only in what

    def latency(self, folder, *arguments):
        """The object of our own figures in the JSON of `avocet bench latency`, and the latencies."""
        with tempfile.NamedTemporaryFile(suffix=".json") as result:
            command = [self.binary, "bench", "latency", "--model", str(folder), "--load-format", "dummy", "--skip-tokenizer-init",
                       "--output-json", result.name, "--num-iters-warmup", "1", *map(str, arguments)]
            done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode != 0:
                sys.exit(f"{' '.join(command)}\n{done.stdout}")
            return json.load(open(result.name))


def line(what, value, unit, roof=None, ratio=None, goal=None):
    row = {"what": what, "value": round(value, 4), "unit": unit}
    if roof is not None:
        row["roof"] = round(roof, 4)
    if ratio is not None:
        row["ratio"] = round(ratio, 3)
    if goal is not None:
        row["goal"] = goal
    print(json.dumps(row), flush=True)


def shape_folder(folder, name):
    path = pathlib.Path(folder) / name.split(",")[0]
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(SHAPES[name]))
    return path


def decode_steps(bench, folder):
    for format_name, flags in FORMATS.items():
        for name in SHAPES:
            for sequences in (1, 8, 32):
                what = f"decode step {format_name} {name}, B={sequences}"
                if not bench.wants(what):
                    continue
                own = bench.latency(shape_folder(folder, name), *flags, "--input-len", 16, "--output-len", 24, "--batch-size", sequences,
                                    "--num-iters", 7)["avocet"]
                line(what, own["decode_step_seconds"] * 1e3, "ms", own["decode_step_bytes"] / own["read_roof_gb_per_s"] / 1e6,
                     own["read_roof_share"], DECODE_GOALS.get((format_name, name, sequences)))


def layer_flops(text):
    """Of one token in the products of a dense model's layers; the head multiplies the last row alone."""
    products = ("proj.weight", "in_proj_qkv.weight", "in_proj_z.weight")
    return 2 * sum(shape[0] * shape[1] for name, shape in tensors_of(text) if name.endswith(products))


def product_rate(bench, format_name):
    """Multiply-adds (counted as two) per second that the products reach for 256 rows, by bench/micro/linear_bench.cpp."""
    only = {"bf16": "bf16 M=256 4096x12288", "int8": "int8 x int8 M=256 4096x12288"}[format_name]
    done = subprocess.run([bench.bin_dir / "linear_bench", "--only", only], capture_output=True, text=True, check=True)
    return max(json.loads(row)["value"] for row in done.stdout.splitlines()) * 1e9


def prompt_steps(bench, folder):
    for format_name, flags in FORMATS.items():
        for name in ("0.8B", "4B"):
            what = f"prompt of 512 tokens {format_name} {name}"
            if not bench.wants(what):
                continue
            before = product_rate(bench, format_name)
            result = bench.latency(shape_folder(folder, name), *flags, "--input-len", 512, "--output-len", 1, "--batch-size", 1, "--num-iters", 5)
            rate = (before + product_rate(bench, format_name)) / 2
            own = 512 / statistics.median(result["latencies"])
            roof = rate / layer_flops(SHAPES[name]["text_config"])
            line(what, own, "tokens/s", roof, own / roof, PROMPT_GOALS.get((format_name, name)))


@contextlib.contextmanager
def busy_process_on_every_core():
    children = []
    for cpu in sorted(os.sched_getaffinity(0)):
        child = os.fork()
        if child == 0:
            os.sched_setaffinity(0, {cpu})
            while True:
                pass
        children.append(child)
    try:
        yield
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def decode_beside_busy_processes(bench, folder):
    what = "decode rate with a busy process on every core, 0.8B"
    if not bench.wants(what):
        return
    path = shape_folder(folder, "0.8B")
    arguments = ("--input-len", 8, "--output-len", 48, "--batch-size", 1, "--num-iters", 3)
    ratios, values = [], []
    for _ in range(5):
        quiet = bench.latency(path, *arguments)["avocet"]["decode_step_seconds"]
        with busy_process_on_every_core():
            busy = bench.latency(path, *arguments)["avocet"]["decode_step_seconds"]
        ratios.append(quiet / busy)
        values.append(1 / busy)
    line(what, statistics.median(values), "steps/s", statistics.median(values) / statistics.median(ratios), statistics.median(ratios), 0.40)


def beside_the_model(bench, folder):
    """Planning, sampling and streaming of one token, as a share of the decode step of the 0.8B shape."""
    what = "scheduler, sampler and streaming, share of a 0.8B step"
    if not bench.wants(what):
        return
    step = bench.latency(shape_folder(folder, "0.8B"), "--input-len", 16, "--output-len", 24, "--batch-size", 1,
                         "--num-iters", 5)["avocet"]["decode_step_seconds"]
    sampler = [json.loads(row) for row in subprocess.run([bench.bin_dir / "sampler_bench", "1"], capture_output=True, text=True).stdout.splitlines()]
    stream = [json.loads(row) for row in subprocess.run([bench.bin_dir / "stream_bench"], capture_output=True, text=True).stdout.splitlines()]
    for way in ("greedy", "top_k20_top_p"):
        sampling = next(row["step_ms"] for row in sampler if row["way"] == way) / 1e3
        streaming = next(row["ns_per_token"] for row in stream if row["way"] == "plain") / 1e9
        share = (sampling + streaming) / step
        line(f"{what}, {way}, B=1", share, "of the step", 0.05, 0.05 / share, 1.0)


def tensors_of(text):
    """Names and shapes of a dense checkpoint."""
    h, key, value = text["hidden_size"], text["linear_num_key_heads"] * 128, text["linear_num_value_heads"] * 128
    prefix = "model.language_model."
    yield prefix + "embed_tokens.weight", [text["vocab_size"], h]
    yield prefix + "norm.weight", [h]
    for i, kind in enumerate(text["layer_types"]):
        layer = f"{prefix}layers.{i}."
        yield layer + "input_layernorm.weight", [h]
        yield layer + "post_attention_layernorm.weight", [h]
        for name, shape in (("gate", [text["intermediate_size"], h]), ("up", [text["intermediate_size"], h]), ("down", [h, text["intermediate_size"]])):
            yield f"{layer}mlp.{name}_proj.weight", shape
        if kind == "full_attention":
            q, kv = text["num_attention_heads"] * 256, text["num_key_value_heads"] * 256
            for name, shape in (("q_proj", [2 * q, h]), ("k_proj", [kv, h]), ("v_proj", [kv, h]), ("o_proj", [h, q]), ("q_norm", [256]), ("k_norm", [256])):
                yield f"{layer}self_attn.{name}.weight", shape
        else:
            heads = text["linear_num_value_heads"]
            for name, shape in (("in_proj_qkv.weight", [2 * key + value, h]), ("in_proj_z.weight", [value, h]), ("in_proj_b.weight", [heads, h]),
                                ("in_proj_a.weight", [heads, h]), ("conv1d.weight", [2 * key + value, 1, 4]), ("A_log", [heads]), ("dt_bias", [heads]),
                                ("norm.weight", [128]), ("out_proj.weight", [h, value])):
                yield f"{layer}linear_attn.{name}", shape


def write_checkpoint(path, model):
    """A bf16 checkpoint of this shape whose values are small and the same in every megabyte; a tokenizer as large as can be found."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(model))
    real = ROOT / "build/real-tokenizer/tokenizer.json"
    tokenizer = real if real.exists() else ROOT / "models/demo/tokenizer.json"
    (path / "tokenizer.json").write_bytes(tokenizer.read_bytes())
    header, offset = {}, 0
    for name, shape in tensors_of(model["text_config"]):
        size = 2
        for dimension in shape:
            size *= dimension
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file = path / "model.safetensors"
    if file.exists() and file.stat().st_size == 8 + len(text) + offset:
        return tokenizer == real
    block = b"".join(struct.pack("<H", 0x3C00 | (i * 2654435761 >> 7 & 0x807F)) for i in range(1 << 19))
    with open(file, "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for at in range(0, offset, len(block)):
            out.write(block[:min(len(block), offset - at)])
    return tokenizer == real


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_once(bench, folder):
    """Seconds from exec to the first streamed token, and the resident bytes without the pages of files."""
    port = free_port()
    begin = time.monotonic()
    server = subprocess.Popen([bench.binary, "serve", str(folder), "--served-model-name", "m", "--host", "127.0.0.1", "--port", str(port),
                               "--max-model-len", "4096", "--kv-cache-memory-bytes", "128M"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        url = f"http://127.0.0.1:{port}"
        while True:
            if server.poll() is not None:
                sys.exit(server.stderr.read())
            with contextlib.suppress(OSError):
                urllib.request.urlopen(url + "/health", timeout=5).read()
                break
            time.sleep(0.005)
        body = json.dumps({"model": "m", "prompt": "Hello there", "max_tokens": 4, "stream": True, "ignore_eos": True}).encode()
        request = urllib.request.Request(url + "/v1/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            reply.readline()
            seconds = time.monotonic() - begin
            reply.read()
        status = pathlib.Path(f"/proc/{server.pid}/status").read_text()
        anonymous = next(int(row.split()[1]) << 10 for row in status.splitlines() if row.startswith("RssAnon"))
        return seconds, anonymous
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


def starts(bench):
    what = "start of avocet serve to the first token, 0.8B file in the page cache"
    if not bench.wants(what):
        return
    folder = ROOT / "build/bench/0.8B"
    is_real = write_checkpoint(folder, SHAPES["0.8B"])
    vocabulary = "the real vocabulary" if is_real else "the demo model's vocabulary"
    weights = (folder / "model.safetensors").stat().st_size
    runs = [start_once(bench, folder) for _ in range(5)]
    seconds = statistics.median(run[0] for run in runs)
    line(f"{what}, {vocabulary}", seconds, "s", 3.0, 3.0 / seconds, 1.0)
    more = max(run[1] for run in runs) - weights - (128 << 20)
    line("memory beyond weights and the cache asked for, 0.8B", more / (1 << 20), "MiB", 300, 300 / max(more / (1 << 20), 1), 1.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--only", default="", help="lines whose name contains this")
    arguments = parser.parse_args()
    bench = Bench(arguments.build, arguments.only)
    with tempfile.TemporaryDirectory() as folder:
        decode_steps(bench, folder)
        prompt_steps(bench, folder)
        beside_the_model(bench, folder)
        decode_beside_busy_processes(bench, folder)
    starts(bench)


if __name__ == "__main__":
    main()
