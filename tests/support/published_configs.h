// The published sizes of the family (model.md 1.4) and config.json texts in the layouts that occur.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

namespace avocet::test {

struct PublishedSize {
  const char* name;
  int32_t hidden, layers, heads, kv_heads, value_heads;
  int32_t intermediate;                                 // dense, else 0
  int32_t experts, top_k, expert_intermediate, shared;  // MoE, else 0
  bool is_tied;
  int32_t vision_depth, vision_hidden, vision_intermediate, vision_heads;
  int64_t text_parameters;  // model.md 1.5, text only, without MTP

  bool is_moe() const { return experts > 0; }
};

inline constexpr std::array kPublishedSizes = {
    PublishedSize{"397B-A17B", 4096, 60, 32, 2, 64, 0, 512, 10, 1024, 1024, false, 27, 1152, 4304, 16, 396'346'350'336},
    PublishedSize{"122B-A10B", 3072, 48, 32, 2, 64, 0, 256, 8, 1024, 1024, false, 27, 1152, 4304, 16, 122'111'526'912},
    PublishedSize{"35B-A3B", 2048, 40, 16, 2, 32, 0, 256, 8, 512, 512, false, 27, 1152, 4304, 16, 34'660'610'688},
    PublishedSize{"27B", 5120, 64, 24, 4, 48, 17408, 0, 0, 0, 0, false, 27, 1152, 4304, 16, 26'895'998'464},
    PublishedSize{"9B", 4096, 32, 16, 4, 32, 12288, 0, 0, 0, 0, false, 27, 1152, 4304, 16, 8'953'803'264},
    PublishedSize{"4B", 2560, 32, 16, 4, 32, 9216, 0, 0, 0, 0, true, 24, 1024, 4096, 16, 4'205'751'296},
    PublishedSize{"2B", 2048, 24, 8, 2, 16, 6144, 0, 0, 0, 0, true, 24, 1024, 4096, 16, 1'881'825'088},
    PublishedSize{"0.8B", 1024, 24, 8, 2, 16, 3584, 0, 0, 0, 0, true, 12, 768, 3072, 12, 752'393'024},
};

// kMultimodal: text_config and vision_config. kTextOnly: text_config alone. kFlat: everything at the root.
enum class ConfigLayout { kMultimodal, kTextOnly, kFlat };

inline nlohmann::json PublishedTextConfig(const PublishedSize& size) {
  nlohmann::json layer_types;
  for (int i = 0; i < size.layers; ++i) layer_types.push_back((i + 1) % 4 == 0 ? "full_attention" : "linear_attention");
  nlohmann::json text = {{"attention_bias", false},
                         {"attention_dropout", 0.0},
                         {"attn_output_gate", true},
                         {"dtype", "bfloat16"},
                         {"eos_token_id", 248044},
                         {"full_attention_interval", 4},
                         {"head_dim", 256},
                         {"hidden_act", "silu"},
                         {"hidden_size", size.hidden},
                         {"initializer_range", 0.02},
                         {"layer_types", layer_types},
                         {"linear_conv_kernel_dim", 4},
                         {"linear_key_head_dim", 128},
                         {"linear_num_key_heads", 16},
                         {"linear_num_value_heads", size.value_heads},
                         {"linear_value_head_dim", 128},
                         {"max_position_embeddings", 262144},
                         {"mlp_only_layers", nlohmann::json::array()},
                         {"model_type", size.is_moe() ? "qwen3_5_moe_text" : "qwen3_5_text"},
                         {"mtp_num_hidden_layers", 1},
                         {"mtp_use_dedicated_embeddings", false},
                         {"num_attention_heads", size.heads},
                         {"num_hidden_layers", size.layers},
                         {"num_key_value_heads", size.kv_heads},
                         {"rms_norm_eps", 1e-6},
                         {"use_cache", true},
                         {"tie_word_embeddings", size.is_tied},
                         {"vocab_size", 248320},
                         {"mamba_ssm_dtype", "float32"},
                         {"bos_token_id", nullptr},
                         {"rope_parameters",
                          {{"mrope_interleaved", true},
                           {"mrope_section", {11, 11, 10}},
                           {"partial_rotary_factor", 0.25},
                           {"rope_theta", 10000000},
                           {"rope_type", "default"}}}};
  if (size.is_moe()) {
    text.update({{"moe_intermediate_size", size.expert_intermediate},
                 {"shared_expert_intermediate_size", size.shared},
                 {"num_experts", size.experts},
                 {"num_experts_per_tok", size.top_k},
                 {"output_router_logits", false},
                 {"router_aux_loss_coef", 0.001}});
  } else {
    text["intermediate_size"] = size.intermediate;
  }
  return text;
}

inline nlohmann::json PublishedConfig(const PublishedSize& size, ConfigLayout layout) {
  const std::string stem = size.is_moe() ? "Qwen3_5Moe" : "Qwen3_5";
  const std::string type = size.is_moe() ? "qwen3_5_moe" : "qwen3_5";
  if (layout == ConfigLayout::kFlat) {
    nlohmann::json root = PublishedTextConfig(size);
    root["architectures"] = {stem + "ForCausalLM"};
    return root;
  }
  nlohmann::json root = {{"architectures", {stem + "ForConditionalGeneration"}},
                         {"model_type", type},
                         {"image_token_id", 248056},
                         {"video_token_id", 248057},
                         {"vision_start_token_id", 248053},
                         {"vision_end_token_id", 248054},
                         {"tie_word_embeddings", size.is_tied},
                         {"transformers_version", "5.2.0"},
                         {"text_config", PublishedTextConfig(size)}};
  if (layout == ConfigLayout::kTextOnly) {
    root["language_model_only"] = true;
    return root;
  }
  root["vision_config"] = {{"deepstack_visual_indexes", nlohmann::json::array()},
                           {"depth", size.vision_depth},
                           {"hidden_act", "gelu_pytorch_tanh"},
                           {"hidden_size", size.vision_hidden},
                           {"in_channels", 3},
                           {"initializer_range", 0.02},
                           {"intermediate_size", size.vision_intermediate},
                           {"model_type", type},
                           {"num_heads", size.vision_heads},
                           {"num_position_embeddings", 2304},
                           {"out_hidden_size", size.hidden},
                           {"patch_size", 16},
                           {"spatial_merge_size", 2},
                           {"temporal_patch_size", 2}};
  return root;
}

}  // namespace avocet::test
