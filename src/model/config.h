// HF config.json of the Qwen3.5 family -> ModelConfig (model.md 1). Dimensions come from the file only; a missing required key is an
// error that names it; only the keys that the reference's own classes default may be absent. Accepts the multimodal layout
// (text_config, vision_config), text-only and flat layouts, for Qwen3.5, 3.6 and 3.8. The file is hostile until parsed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace avocet::model {

enum class LayerKind : uint8_t { kDeltaNet, kAttention };

struct RopeConfig {
  float theta = 0;
  int32_t rotary_dim = 0;              // leading dims of a head that rotate
  std::vector<int32_t> mrope_section;  // frequencies per axis T, H, W; empty: all T
  bool mrope_interleaved = false;
  // YaRN (model.md 1.6); factor 1 is the default rope.
  float yarn_factor = 1;
  float yarn_beta_fast = 32;
  float yarn_beta_slow = 1;
  bool yarn_truncate = true;  // round the ramp's ends outward to whole frequencies
  int32_t yarn_original_positions = 0;
  float attention_factor = 1;  // multiplies cos and sin

  std::vector<float> InverseFrequencies() const;  // [rotary_dim/2]
  std::vector<uint8_t> FrequencyAxes() const;     // [rotary_dim/2], 0 T, 1 H, 2 W
};

struct MoeConfig {
  int32_t num_experts = 0;
  int32_t top_k = 0;
  int32_t expert_intermediate = 0;
  int32_t shared_intermediate = 0;  // 0: no shared expert
};

struct VisionConfig {
  int32_t depth = 0;
  int32_t hidden = 0;
  int32_t intermediate = 0;
  int32_t num_heads = 0;
  int32_t patch = 0;
  int32_t temporal_patch = 0;
  int32_t spatial_merge = 0;
  int32_t num_positions = 0;
  int32_t out_hidden = 0;
  int32_t in_channels = 0;
};

struct ModelConfig {
  std::string architecture;  // e.g. "Qwen3_5MoeForConditionalGeneration"
  std::string model_type;    // e.g. "qwen3_5_moe"
  std::string dtype;         // of the checkpoint's matrices, as config.json says: "bfloat16", "float16", "float32"

  int32_t hidden = 0;
  int32_t num_layers = 0;
  std::vector<LayerKind> layers;  // [num_layers]
  int32_t vocab_rows = 0;         // rows of the embedding and of lm_head, padding included
  int32_t max_positions = 0;      // with YaRN the stretched range
  float rms_eps = 0;
  bool tied_head = false;

  // Full attention.
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  RopeConfig rope;

  // Gated delta net.
  int32_t linear_key_heads = 0;
  int32_t linear_value_heads = 0;
  int32_t linear_key_dim = 0;
  int32_t linear_value_dim = 0;
  int32_t conv_kernel = 0;

  int32_t intermediate = 0;  // dense MLP; 0 for MoE
  std::optional<MoeConfig> moe;
  int32_t num_mtp_layers = 0;
  int32_t fp8_block = 0;       // FP8 releases: rows and columns that share a scale; 0: no FP8
  bool int8_by_dtype = false;  // compressed-tensors: int8 tensors have a weight_scale beside them
  // Not of the file: drafts per sequence and step that the server was asked for. 0: the draft layer is neither loaded nor given memory.
  int32_t num_drafts = 0;
  std::optional<VisionConfig> vision;

  std::vector<int32_t> eos_token_ids;  // of config.json; generation_config.json adds its own (cli merges)
  int32_t image_token_id = -1;
  int32_t video_token_id = -1;
  int32_t vision_start_token_id = -1;
  int32_t vision_end_token_id = -1;

  int32_t NumLayers(LayerKind kind) const;
  // Layers with K/V: the attention layers, and the draft layer if it is used.
  int32_t NumKvLayers() const { return NumLayers(LayerKind::kAttention) + (num_drafts > 0 ? 1 : 0); }
};

Result<ModelConfig> ParseConfig(std::string_view json);
Result<ModelConfig> LoadConfig(const std::string& model_dir);

// generation_config.json next to the model: defaults for sampling and stop ids.
struct GenerationConfig {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int32_t> top_k, max_new_tokens;
  std::vector<int32_t> eos_token_ids;
};
Result<GenerationConfig> ParseGenerationConfig(std::string_view json);
// `model_dir` is the folder that holds the file; without the file every field is empty.
Result<GenerationConfig> LoadGenerationConfig(const std::string& model_dir);

}  // namespace avocet::model
