// The weights of the network, named as in the paper (model.md 2.1), each a PackedWeight or a small f32 vector in the weights arena.
// Fused where one product reads one input: qkv (q with gate | k | v), qkvz (q | k | v | z), ba (b | a), gate_up (alternating panels).
// Norm weights are stored as 1+w, except linear_attn.norm which is used as is.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "device/arena.h"
#include "device/worker_pool.h"
#include "model/config.h"
#include "ops/packed_weight.h"
#include "weights/loader.h"

namespace avocet::model {

struct AttentionWeights {
  ops::PackedWeight qkv;          // [num_heads*2*head_dim + 2*num_kv_heads*head_dim, hidden]
  ops::PackedWeight out;          // [hidden, num_heads*head_dim]
  std::span<const float> q_norm;  // [head_dim], 1+w
  std::span<const float> k_norm;  // [head_dim], 1+w
};

struct DeltaNetWeights {
  ops::PackedWeight qkvz;          // [conv_dim + total_value_dim, hidden]
  ops::PackedWeight ba;            // [2*num_value_heads, hidden]
  ops::PackedWeight out;           // [hidden, total_value_dim]
  std::span<const float> conv;     // [conv_dim, conv_kernel]
  std::span<const float> a_log;    // [num_value_heads]
  std::span<const float> dt_bias;  // [num_value_heads]
  std::span<const float> norm;     // [value_dim], as stored
};

struct MlpWeights {
  ops::PackedWeight gate_up;  // alternating panels, see ops::LinearSwiGlu
  ops::PackedWeight down;     // [hidden, intermediate]
};

struct MoeWeights {
  ops::PackedWeight router;                       // [num_experts, hidden]
  std::vector<ops::PackedWeight> expert_gate_up;  // [num_experts]
  std::vector<ops::PackedWeight> expert_down;     // [num_experts]
  MlpWeights shared;                              // empty (out_features 0) when there is no shared expert
  ops::PackedWeight shared_gate;                  // [1, hidden]
};

struct LayerWeights {
  std::span<const float> input_norm;  // [hidden], 1+w
  std::variant<DeltaNetWeights, AttentionWeights> mixer;
  std::span<const float> post_norm;  // [hidden], 1+w
  std::variant<MlpWeights, MoeWeights> mlp;
};

// The draft layer (model.md 5): one attention layer between its own norms; embedding and head are the model's.
struct DraftWeights {
  std::span<const float> embedding_norm;  // [hidden], 1+w
  std::span<const float> hidden_norm;     // [hidden], 1+w
  ops::PackedWeight fc;                   // [hidden, 2*hidden]: embedding first
  LayerWeights layer;
  std::span<const float> final_norm;  // [hidden], 1+w
};

struct ModelWeights {
  ops::PackedWeight embedding;  // [vocab_rows, hidden]
  std::vector<LayerWeights> layers;
  std::span<const float> final_norm;  // [hidden], 1+w
  ops::PackedWeight lm_head;          // [vocab_rows, hidden]; the embedding itself when tied
  std::optional<DraftWeights> draft;  // when config.num_drafts > 0
  device::Arena arena;                // owns all of it; sealed
};

struct LoadOptions {
  weights::WeightPolicy policy = weights::WeightPolicy::kExact;
  weights::Quantization quantization = {};
  weights::ProgressFn progress;  // may be empty
};

// What was loaded, for the start-up report.
struct LoadReport {
  size_t file_bytes = 0;
  size_t packed_bytes = 0;
  double seconds = 0;
  double copy_gb_per_s = 0;              // (bytes read + bytes written) / seconds of the packing phase
  std::vector<std::string> unused;       // one line per group: "153 vision tensors", "15 mtp tensors"
  std::vector<std::string> conversions;  // "f16 matrices widened to f32 (exact)", ...
};

// Maps the checkpoint in `model_dir`, checks every tensor (each used exactly once; vision and MTP tensors may stay unused), then
// allocates and packs in parallel.
Result<ModelWeights> LoadModelWeights(const ModelConfig& config, const std::string& model_dir, device::WorkerPool& pool,
                                      const LoadOptions& options, LoadReport* report);

// --load-format dummy: seeded random weights of the right shapes, no file read; scaled so that activations stay finite and logits
// differ. The same seed gives the same weights on every machine and thread count.
Result<ModelWeights> MakeDummyWeights(const ModelConfig& config, uint64_t seed, device::WorkerPool& pool, const LoadOptions& options,
                                      LoadReport* report);

// Bytes the arena will hold, without loading: for the memory plan and `avocet inspect`.
// `format` is that of float matrices.
size_t PackedModelBytes(const ModelConfig& config, ops::WeightFormat format, const weights::Quantization& quantization = {});

// Of the text model, without drafts and vision; a tied head counts once.
int64_t NumTextParameters(const ModelConfig& config);

}  // namespace avocet::model
