#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/limits.h"
#include "support/published_configs.h"
#include "support/safetensors_writer.h"

namespace avocet::model {
namespace {

using nlohmann::json;
using test::ConfigLayout;
using test::kPublishedSizes;
using test::PublishedConfig;
using test::TempDir;
using testing::ElementsAre;
using testing::HasSubstr;

const test::PublishedSize& Size(std::string_view name) {
  return *std::ranges::find_if(kPublishedSizes, [&](const auto& size) { return size.name == name; });
}

// A dense and a MoE config with one field changed, parsed.
json Dense() {
  return PublishedConfig(Size("9B"), ConfigLayout::kMultimodal);
}
json Moe() {
  return PublishedConfig(Size("35B-A3B"), ConfigLayout::kMultimodal);
}

std::string RefusalOf(const json& config) {
  const auto result = ParseConfig(config.dump());
  if (result) return "accepted";
  EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
  return result.error().message;
}

std::string RefusalWith(json config, const std::string& pointer, const json& value) {
  config[json::json_pointer(pointer)] = value;
  return RefusalOf(config);
}

std::string RefusalWithout(json config, const std::string& object, const std::string& key) {
  config[json::json_pointer(object)].erase(key);
  return RefusalOf(config);
}

ModelConfig Accept(const json& config) {
  auto result = ParseConfig(config.dump());
  EXPECT_TRUE(result) << result.error().message;
  return result.value_or(ModelConfig{});
}

TEST(Config, EveryPublishedSize_ParsedInEveryLayout) {
  for (const test::PublishedSize& size : kPublishedSizes) {
    for (const ConfigLayout layout : {ConfigLayout::kMultimodal, ConfigLayout::kTextOnly, ConfigLayout::kFlat}) {
      SCOPED_TRACE(fmt::format("{} layout {}", size.name, static_cast<int>(layout)));
      const ModelConfig config = Accept(PublishedConfig(size, layout));
      EXPECT_EQ(config.hidden, size.hidden);
      EXPECT_EQ(config.num_layers, size.layers);
      EXPECT_EQ(config.NumLayers(LayerKind::kAttention), size.layers / 4);
      EXPECT_EQ(config.NumLayers(LayerKind::kDeltaNet), size.layers / 4 * 3);
      EXPECT_EQ(config.layers[3], LayerKind::kAttention);
      EXPECT_EQ(config.num_heads, size.heads);
      EXPECT_EQ(config.num_kv_heads, size.kv_heads);
      EXPECT_EQ(config.head_dim, 256);
      EXPECT_EQ(config.linear_key_heads, 16);
      EXPECT_EQ(config.linear_value_heads, size.value_heads);
      EXPECT_EQ(config.conv_kernel, 4);
      EXPECT_EQ(config.vocab_rows, 248320);
      EXPECT_EQ(config.max_positions, 262144);
      EXPECT_EQ(config.tied_head, size.is_tied);
      EXPECT_EQ(config.intermediate, size.intermediate);
      EXPECT_EQ(config.moe.has_value(), size.is_moe());
      EXPECT_EQ(config.num_mtp_layers, 1);
      EXPECT_EQ(config.dtype, "bfloat16");
      EXPECT_FLOAT_EQ(config.rms_eps, 1e-6f);
      EXPECT_EQ(config.rope.theta, 1e7f);
      EXPECT_EQ(config.rope.rotary_dim, 64);
      EXPECT_THAT(config.rope.mrope_section, ElementsAre(11, 11, 10));
      EXPECT_THAT(config.eos_token_ids, ElementsAre(248044));
      EXPECT_EQ(config.vision.has_value(), layout == ConfigLayout::kMultimodal);
      if (!size.is_moe()) continue;
      EXPECT_EQ(config.moe->num_experts, size.experts);
      EXPECT_EQ(config.moe->top_k, size.top_k);
      EXPECT_EQ(config.moe->expert_intermediate, size.expert_intermediate);
      EXPECT_EQ(config.moe->shared_intermediate, size.shared);
    }
  }
}

TEST(Config, VisionSection_Read) {
  const ModelConfig config = Accept(Dense());
  ASSERT_TRUE(config.vision);
  EXPECT_EQ(config.vision->depth, 27);
  EXPECT_EQ(config.vision->num_heads, 16);
  EXPECT_EQ(config.vision->num_positions, 2304);
  EXPECT_EQ(config.image_token_id, 248056);
  EXPECT_EQ(config.vision_end_token_id, 248054);
  EXPECT_THAT(RefusalWith(Dense(), "/vision_config/out_hidden_size", 64), HasSubstr("differs from the text hidden_size 4096"));
  EXPECT_THAT(RefusalWith(Dense(), "/vision_config/num_heads", 7), HasSubstr("is not a multiple of num_heads 7"));
  EXPECT_THAT(RefusalWith(Dense(), "/vision_config/num_position_embeddings", 2305), HasSubstr("is not a square"));
  EXPECT_THAT(RefusalWith(Dense(), "/vision_config/deepstack_visual_indexes", {1, 2}),
              HasSubstr("vision_config.deepstack_visual_indexes is not empty"));
  EXPECT_THAT(RefusalWithout(Dense(), "", "image_token_id"), HasSubstr("image_token_id is missing"));
  EXPECT_THAT(RefusalWith(Dense(), "/image_token_id", 248320), HasSubstr("image_token_id is 248320, allowed are 0 to 248319"));
  EXPECT_THAT(RefusalWith(Dense(), "/vision_config", 5), HasSubstr("vision_config is 5, wanted an object"));
}

TEST(Config, MissingDimension_NamedWithItsPath) {
  for (const char* key : {"hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size",
                          "max_position_embeddings", "rms_norm_eps", "linear_num_key_heads", "linear_num_value_heads",
                          "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim", "intermediate_size"}) {
    EXPECT_EQ(RefusalWithout(Dense(), "/text_config", key), fmt::format("text_config.{} is missing", key));
  }
  for (const char* key : {"num_experts", "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size"}) {
    EXPECT_EQ(RefusalWithout(Moe(), "/text_config", key), fmt::format("text_config.{} is missing", key));
  }
  EXPECT_EQ(RefusalWith(Dense(), "/text_config/hidden_size", nullptr), "text_config.hidden_size is missing");
  json flat = PublishedConfig(Size("9B"), ConfigLayout::kFlat);
  flat.erase("hidden_size");
  EXPECT_EQ(RefusalOf(flat), "hidden_size is missing");
}

TEST(Config, NumberOfWrongTypeOrRange_NamedWithBounds) {
  EXPECT_EQ(RefusalWith(Dense(), "/text_config/hidden_size", 0), "text_config.hidden_size is 0, allowed are 1 to 65536");
  EXPECT_EQ(RefusalWith(Dense(), "/text_config/hidden_size", -4096), "text_config.hidden_size is -4096, allowed are 1 to 65536");
  EXPECT_EQ(RefusalWith(Dense(), "/text_config/hidden_size", uint64_t{18446744073709551615u}),
            "text_config.hidden_size is 18446744073709551615, allowed are 1 to 65536");
  EXPECT_EQ(RefusalWith(Dense(), "/text_config/hidden_size", 4096.5), "text_config.hidden_size is 4096.5, wanted a whole number");
  EXPECT_EQ(RefusalWith(Dense(), "/text_config/hidden_size", "4096"), "text_config.hidden_size is \"4096\", wanted a whole number");
  EXPECT_EQ(RefusalWith(Dense(), "/text_config/hidden_size", json::array()), "text_config.hidden_size is a list, wanted a whole number");
  EXPECT_THAT(RefusalWith(Dense(), "/text_config/num_hidden_layers", 100000), HasSubstr("allowed are 1 to 512"));
  EXPECT_THAT(RefusalWith(Moe(), "/text_config/num_experts", 5000), HasSubstr("allowed are 1 to 4096"));
  EXPECT_THAT(RefusalWith(Dense(), "/text_config/rms_norm_eps", "x"), HasSubstr("wanted a number"));
  EXPECT_THAT(RefusalWith(Dense(), "/text_config/rms_norm_eps", 0), HasSubstr("text_config.rms_norm_eps is 0, allowed are"));
  EXPECT_THAT(RefusalWith(Dense(), "/text_config/attention_bias", "no"), HasSubstr("wanted true or false"));
  EXPECT_THAT(RefusalWith(Dense(), "/text_config/hidden_act", 3), HasSubstr("wanted a string"));
}

TEST(Config, TextThatIsNotAConfig_Refused) {
  const auto refusal = [](const std::string& text) {
    const auto result = ParseConfig(text);
    return result ? "accepted" : result.error().message;
  };
  EXPECT_THAT(refusal(""), HasSubstr("not JSON at byte"));
  EXPECT_THAT(refusal("{\"a\": NaN}"), HasSubstr("not JSON at byte"));
  EXPECT_THAT(refusal("{\"a\": 1e999}"), HasSubstr("a number is out of range"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("holds array where an object"));
  EXPECT_THAT(refusal("{\"a\":" + std::string(1'000'000, '[')), HasSubstr("nests deeper than 128"));
  EXPECT_THAT(refusal("{\"a\":\"" + std::string(1000, '[') + "\\\"[[[\"}"), HasSubstr("neither architectures nor model_type"));
  EXPECT_THAT(refusal(std::string(limits::kConfigBytesMax + 1, ' ')), HasSubstr("at most 4194304 are read"));
  EXPECT_THAT(RefusalWith(Dense(), "/text_config", 7), HasSubstr("text_config is 7, wanted an object"));
}

TEST(Config, DuplicateKey_LastOneWins) {
  std::string text = Dense().dump();
  const std::string key = "\"head_dim\":256";
  text.replace(text.find(key), key.size(), "\"head_dim\":128,\"head_dim\":256");
  const auto config = ParseConfig(text);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->head_dim, 256);
}

TEST(Config, UnknownArchitecture_RefusedWithTheListOfKnownOnes) {
  EXPECT_THAT(RefusalWith(Dense(), "/architectures", {"LlamaForCausalLM"}),
              testing::AllOf(HasSubstr("architecture \"LlamaForCausalLM\" is not supported"),
                             HasSubstr("Qwen3_5ForConditionalGeneration, "
                                       "Qwen3_5MoeForConditionalGeneration, Qwen3_5ForCausalLM, Qwen3_5MoeForCausalLM")));
  EXPECT_THAT(RefusalWith(Dense(), "/architectures", json::array()), HasSubstr("wanted a list of names"));
  EXPECT_THAT(RefusalWith(Dense(), "/architectures", {7}), HasSubstr("architecture 7 is not supported"));
  EXPECT_THAT(RefusalWith(Dense(), "/model_type", "qwen3_next"),
              testing::AllOf(HasSubstr("model_type \"qwen3_next\" is not supported"), HasSubstr("qwen3_5_moe_text")));
  EXPECT_THAT(RefusalWith(Dense(), "/model_type", "a\nb"), HasSubstr("model_type \"a?b\""));
  EXPECT_THAT(RefusalWith(Dense(), "/model_type", "qwen3_5_moe"), HasSubstr("contradicts \"Qwen3_5ForConditionalGeneration\""));
  EXPECT_THAT(RefusalWith(Dense(), "/text_config/model_type", "qwen3_5_moe_text"), HasSubstr("text_config.model_type"));
}

TEST(Config, OnlyModelType_NamesTheArchitecture) {
  json config = Moe();
  config.erase("architectures");
  EXPECT_EQ(Accept(config).architecture, "Qwen3_5MoeForConditionalGeneration");
  json flat = PublishedConfig(Size("9B"), ConfigLayout::kFlat);
  flat.erase("architectures");
  EXPECT_EQ(Accept(flat).architecture, "Qwen3_5ForCausalLM");
  EXPECT_EQ(Accept(flat).model_type, "qwen3_5_text");
}

TEST(Config, FlatConfigWithoutTextModelType_AcceptedByArchitecture) {
  json flat = PublishedConfig(Size("35B-A3B"), ConfigLayout::kFlat);
  flat.erase("model_type");
  EXPECT_EQ(Accept(flat).model_type, "qwen3_5_moe");
}

TEST(Config, FeaturesTheFamilyLacks_RefusedByName) {
  EXPECT_THAT(RefusalWith(Moe(), "/text_config/norm_topk_prob", false),
              HasSubstr("text_config.norm_topk_prob is false, which is not supported"));
  EXPECT_EQ(RefusalWith(Moe(), "/text_config/norm_topk_prob", true), "accepted");
  EXPECT_THAT(RefusalWith(Moe(), "/text_config/mlp_only_layers", {0}), HasSubstr("text_config.mlp_only_layers is not empty"));
  EXPECT_THAT(RefusalWith(Moe(), "/text_config/decoder_sparse_step", 2), HasSubstr("text_config.decoder_sparse_step is not 1"));
  EXPECT_THAT(RefusalWith(Dense(), "/text_config/attention_bias", true), HasSubstr("text_config.attention_bias is true"));
  EXPECT_THAT(RefusalWith(Dense(), "/text_config/attn_output_gate", false), HasSubstr("text_config.attn_output_gate is false"));
  EXPECT_THAT(RefusalWith(Dense(), "/text_config/hidden_act", "gelu"),
              HasSubstr("text_config.hidden_act is \"gelu\", supported is \"silu\""));
  EXPECT_THAT(RefusalWith(Dense(), "/text_config/output_gate_type", "sigmoid"), HasSubstr("text_config.output_gate_type is \"sigmoid\""));
  EXPECT_THAT(RefusalWith(Dense(), "/text_config/mtp_use_dedicated_embeddings", true), HasSubstr("mtp_use_dedicated_embeddings"));
  EXPECT_THAT(RefusalWith(Dense(), "/text_config/dtype", "float64"), HasSubstr("dtype \"float64\" is not supported"));
}

TEST(Config, Qwen36And38Variants_Accepted) {
  json config = PublishedConfig(Size("27B"), ConfigLayout::kMultimodal);
  config["text_config"]["output_gate_type"] = "swish";
  config["text_config"]["bos_token_id"] = 248044;
  config["language_model_only"] = false;
  config["vision_config"]["model_type"] = "qwen3_5_vision";
  EXPECT_EQ(RefusalOf(config), "accepted");
  // 2.4T-A95B: text only, 92 layers, 512 experts; its widths are not public, those of 397B stand in.
  json large = PublishedConfig(Size("397B-A17B"), ConfigLayout::kFlat);
  large["num_hidden_layers"] = 92;
  large.erase("layer_types");
  EXPECT_EQ(Accept(large).NumLayers(LayerKind::kAttention), 23);
}

TEST(Config, QuantizedCheckpoint_RefusedByFormat) {
  json config = Dense();
  config["quantization_config"] = {{"quant_method", "awq"}, {"bits", 4}};
  EXPECT_THAT(RefusalOf(config),
              testing::AllOf(HasSubstr("quantization_config"), HasSubstr("\"awq\""), HasSubstr("served are bf16, f16 and f32")));
  config["quantization_config"] = {
      {"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {128, 128}}, {"activation_scheme", "dynamic"}};
  EXPECT_EQ(Accept(config).fp8_block, 128);
  for (const json& block : {json(nullptr), json(128), json({128}), json({128, 64}), json({0, 0}), json({"128", "128"}), json({1e9, 1e9})}) {
    config["quantization_config"]["weight_block_size"] = block;
    EXPECT_THAT(RefusalOf(config), HasSubstr("weight_block_size"));
  }
  config["quantization_config"] = nullptr;
  EXPECT_EQ(RefusalOf(config), "accepted");
  config["text_config"]["quantization_config"] = {{"quant_method", "compressed-tensors"}};
  EXPECT_THAT(RefusalOf(config), HasSubstr("compressed-tensors"));
}

TEST(Config, CompressedTensorsInt8_AcceptedOnlyAsServed) {
  json config = Dense();
  const json weights = {{"num_bits", 8}, {"type", "int"}, {"symmetric", true}, {"strategy", "channel"}};
  const json inputs = {{"num_bits", 8}, {"type", "int"}, {"symmetric", true}, {"strategy", "token"}, {"dynamic", true}};
  const json served = {{"quant_method", "compressed-tensors"},
                       {"format", "int-quantized"},
                       {"config_groups", {{"group_0", {{"weights", weights}, {"input_activations", inputs}}}}}};
  config["quantization_config"] = served;
  EXPECT_TRUE(Accept(config).int8_by_dtype);
  const auto refusal_with = [&](const json::json_pointer& at, const json& value) {
    config["quantization_config"] = served;
    config["quantization_config"][at] = value;
    return RefusalOf(config);
  };
  const auto group = [](const char* rest) { return json::json_pointer(std::string("/config_groups/group_0/") + rest); };
  EXPECT_THAT(refusal_with(group("weights/num_bits"), 4), HasSubstr("group_0"));
  EXPECT_THAT(refusal_with(group("weights/num_bits"), "8"), HasSubstr("group_0"));
  EXPECT_THAT(refusal_with(group("weights/strategy"), "group"), HasSubstr("group_0"));
  EXPECT_THAT(refusal_with(group("weights/symmetric"), false), HasSubstr("group_0"));
  EXPECT_THAT(refusal_with(group("input_activations"), nullptr), HasSubstr("group_0"));
  EXPECT_THAT(refusal_with(group("input_activations/dynamic"), false), HasSubstr("group_0"));
  EXPECT_THAT(refusal_with(json::json_pointer("/format"), "pack-quantized"), HasSubstr("pack-quantized"));
  EXPECT_THAT(refusal_with(json::json_pointer("/config_groups"), json::object()), HasSubstr("served are"));
  EXPECT_THAT(refusal_with(json::json_pointer("/config_groups"), 3), HasSubstr("served are"));
  EXPECT_THAT(refusal_with(json::json_pointer("/kv_cache_scheme"), {{"num_bits", 8}}), HasSubstr("kv_cache_scheme"));
}

TEST(Config, TiedHead_TextSettingWinsElseTopLevel) {
  json config = Dense();
  config["tie_word_embeddings"] = true;
  config["text_config"]["tie_word_embeddings"] = false;
  EXPECT_FALSE(Accept(config).tied_head);
  config["text_config"].erase("tie_word_embeddings");
  EXPECT_TRUE(Accept(config).tied_head);
  config.erase("tie_word_embeddings");
  EXPECT_FALSE(Accept(config).tied_head);
}

TEST(Config, LayerTypes_AbsentMeansInterval) {
  json config = Dense();
  config["text_config"].erase("layer_types");
  config["text_config"]["full_attention_interval"] = 8;
  EXPECT_EQ(Accept(config).NumLayers(LayerKind::kAttention), 4);
  EXPECT_EQ(Accept(config).layers[7], LayerKind::kAttention);
  config["text_config"].erase("full_attention_interval");
  EXPECT_EQ(Accept(config).NumLayers(LayerKind::kAttention), 8);
  config["text_config"]["full_attention_interval"] = 0;
  EXPECT_THAT(RefusalOf(config), HasSubstr("full_attention_interval is 0"));
  config["text_config"]["full_attention_interval"] = 100;
  EXPECT_THAT(RefusalOf(config), HasSubstr("none of the 32 layers is a full_attention layer"));
}

TEST(Config, LayerTypes_LengthAndNamesChecked) {
  EXPECT_THAT(RefusalWith(Dense(), "/text_config/layer_types", {"full_attention"}),
              HasSubstr("layer_types has 1 entries, num_hidden_layers is 32"));
  EXPECT_THAT(RefusalWith(Dense(), "/text_config/layer_types/5", "sliding_attention"), HasSubstr("holds \"sliding_attention\""));
  EXPECT_THAT(RefusalWith(Dense(), "/text_config/layer_types/5", 3), HasSubstr("layer_types holds 3"));
  EXPECT_THAT(RefusalWith(Dense(), "/text_config/layer_types", "full_attention"), HasSubstr("layer_types has 0 entries"));
  EXPECT_THAT(RefusalWith(Dense(), "/text_config/layer_types", json(32, "full_attention")),
              HasSubstr("none of the 32 layers is a linear_attention"));
}

TEST(Config, HeadCountsThatDoNotDivide_Refused) {
  EXPECT_THAT(RefusalWith(Dense(), "/text_config/num_key_value_heads", 3),
              HasSubstr("num_attention_heads 16 is not a multiple of num_key_value_heads 3"));
  EXPECT_THAT(RefusalWith(Dense(), "/text_config/linear_num_value_heads", 24), HasSubstr("linear_num_value_heads 24 is not a multiple"));
  EXPECT_THAT(RefusalWith(Dense(), "/text_config/head_dim", 255), HasSubstr("head_dim is 255, wanted an even number"));
  EXPECT_THAT(RefusalWith(Moe(), "/text_config/num_experts", 4), HasSubstr("num_experts_per_tok is 8, num_experts only 4"));
}

TEST(Config, EosToken_NumberOrList) {
  json config = Dense();
  config["text_config"]["eos_token_id"] = {248044, 248046};
  EXPECT_THAT(Accept(config).eos_token_ids, ElementsAre(248044, 248046));
  config["text_config"]["eos_token_id"] = nullptr;
  config["eos_token_id"] = 7;
  EXPECT_THAT(Accept(config).eos_token_ids, ElementsAre(7));
  config["eos_token_id"] = 248320;
  EXPECT_THAT(RefusalOf(config), HasSubstr("eos_token_id is 248320"));
}

TEST(Config, Dtype_BothSpellings) {
  json config = Dense();
  config["text_config"].erase("dtype");
  config["torch_dtype"] = "float16";
  EXPECT_EQ(Accept(config).dtype, "float16");
  config.erase("torch_dtype");
  EXPECT_EQ(Accept(config).dtype, "bfloat16");
}

// --- Rotary embedding ---------------------------------------------------------------------------------------------------------------

TEST(Rope, DefaultFrequencies_MatchTheSpecification) {
  const RopeConfig rope = Accept(Dense()).rope;
  const std::vector<float> frequencies = rope.InverseFrequencies();
  ASSERT_EQ(frequencies.size(), 32u);
  // model.md 2.8, six digits given.
  EXPECT_EQ(frequencies[0], 1.0f);
  EXPECT_NEAR(frequencies[1], 0.604296, 5e-7);
  EXPECT_NEAR(frequencies[2], 0.365174, 5e-7);
  EXPECT_NEAR(frequencies[3], 0.220673, 5e-7);
  EXPECT_NEAR(frequencies[31], 1.654817e-7, 5e-14);
  EXPECT_EQ(rope.attention_factor, 1.0f);
}

TEST(Rope, InterleavedAxes_FollowTheStrideOfThree) {
  const std::vector<uint8_t> axes = Accept(Dense()).rope.FrequencyAxes();
  ASSERT_EQ(axes.size(), 32u);
  for (size_t j = 0; j < 32; ++j) {
    const int want = j % 3 == 2 && j < 30 ? 2 : j % 3 == 1 && j < 33 ? 1 : 0;
    EXPECT_EQ(axes[j], want) << j;
  }
  json contiguous = Dense();
  contiguous["text_config"]["rope_parameters"]["mrope_interleaved"] = false;
  const std::vector<uint8_t> blocks = Accept(contiguous).rope.FrequencyAxes();
  EXPECT_EQ(std::ranges::count(blocks, 0), 11);
  EXPECT_EQ(blocks[10], 0);
  EXPECT_EQ(blocks[11], 1);
  EXPECT_EQ(blocks[21], 1);
  EXPECT_EQ(blocks[22], 2);
}

TEST(Rope, UnevenSections_NeverReachPastTheEnd) {
  RopeConfig rope;
  rope.theta = 1e4f;
  rope.rotary_dim = 16;
  rope.mrope_interleaved = true;
  rope.mrope_section = {0, 8, 0};
  EXPECT_THAT(rope.FrequencyAxes(), ElementsAre(0, 1, 0, 0, 1, 0, 0, 1));
  rope.mrope_section = {};
  EXPECT_THAT(rope.FrequencyAxes(), testing::Each(0));
}

TEST(Rope, Section_CheckedAgainstTheRotaryWidth) {
  EXPECT_THAT(RefusalWith(Dense(), "/text_config/rope_parameters/mrope_section", {11, 11, 11}),
              HasSubstr("3 numbers with sum 33, wanted 3 with sum 32"));
  EXPECT_THAT(RefusalWith(Dense(), "/text_config/rope_parameters/mrope_section", {16, 16}), HasSubstr("2 numbers"));
  EXPECT_THAT(RefusalWith(Dense(), "/text_config/rope_parameters/mrope_section", {-1, 22, 11}), HasSubstr("mrope_section is -1"));
  EXPECT_THAT(RefusalWith(Dense(), "/text_config/rope_parameters/mrope_section", "x"), HasSubstr("wanted a whole number"));
  json config = Dense();
  config["text_config"]["rope_parameters"].erase("mrope_section");
  EXPECT_THAT(Accept(config).rope.mrope_section, ElementsAre(11, 11, 10));
  config["text_config"]["head_dim"] = 128;
  EXPECT_TRUE(Accept(config).rope.mrope_section.empty());
}

TEST(Rope, PartialFactor_InsideOutsideOrDefault) {
  json config = Dense();
  config["text_config"]["rope_parameters"].erase("partial_rotary_factor");
  EXPECT_EQ(Accept(config).rope.rotary_dim, 64);
  config["text_config"]["partial_rotary_factor"] = 0.5;
  config["text_config"]["rope_parameters"]["mrope_section"] = {22, 21, 21};
  EXPECT_EQ(Accept(config).rope.rotary_dim, 128);
  config["text_config"]["partial_rotary_factor"] = 0.0;
  EXPECT_THAT(RefusalOf(config), HasSubstr("rotates 0 dimensions"));
  config["text_config"]["partial_rotary_factor"] = 1.5;
  EXPECT_THAT(RefusalOf(config), HasSubstr("partial_rotary_factor is 1.5"));
}

TEST(Rope, Theta_InEitherPlaceButSomewhere) {
  json config = Dense();
  config["text_config"]["rope_parameters"].erase("rope_theta");
  EXPECT_THAT(RefusalOf(config), HasSubstr("rope_theta is missing"));
  config["text_config"]["rope_theta"] = 10000.0;
  EXPECT_EQ(Accept(config).rope.theta, 10000.0f);
  config["text_config"].erase("rope_parameters");
  EXPECT_EQ(Accept(config).rope.theta, 10000.0f);
  config["text_config"]["rope_theta"] = -1;
  EXPECT_THAT(RefusalOf(config), HasSubstr("rope_theta is -1"));
  EXPECT_THAT(RefusalWith(Dense(), "/text_config/rope_parameters", {1}), HasSubstr("rope_parameters is a list, wanted an object"));
}

json WithYarn() {
  json config = Dense();
  config["text_config"]["rope_parameters"].update({{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 262144}});
  return config;
}

TEST(Rope, Yarn_MatchesTheReferenceFormula) {
  const ModelConfig config = Accept(WithYarn());
  EXPECT_EQ(config.max_positions, 1048576);
  // model.md 1.6: 0.1 ln 4 + 1; frequencies unchanged up to 14, divided by 4 from 22 on, between them the ramp.
  EXPECT_NEAR(config.rope.attention_factor, 1.138629, 5e-7);
  const std::vector<float> stretched = config.rope.InverseFrequencies();
  const std::vector<float> plain = Accept(Dense()).rope.InverseFrequencies();
  for (size_t j = 0; j < 32; ++j) {
    const double ramp = std::clamp((static_cast<double>(j) - 14.0) / 8.0, 0.0, 1.0);
    // Both are rounded to f32 once: half an ulp each, and the factor is exact to 1e-16.
    EXPECT_NEAR(stretched[j] / plain[j], (1 - ramp) + ramp / 4, 1.5e-7) << j;
  }
}

TEST(Rope, YarnWithoutTruncation_UsesTheExactRamp) {
  json config = WithYarn();
  config["text_config"]["rope_parameters"]["truncate"] = false;
  const std::vector<float> stretched = Accept(config).rope.InverseFrequencies();
  const std::vector<float> plain = Accept(Dense()).rope.InverseFrequencies();
  // corr(32) = 14.241, corr(1) = 21.122 (model.md 1.6, three decimals: the ramp moves by 1e-4).
  const double ramp = (18 - 14.241) / (21.122 - 14.241);
  EXPECT_NEAR(stretched[18] / plain[18], (1 - ramp) + ramp / 4, 3e-4);
}

TEST(Rope, YarnOptions_ReadAndBounded) {
  json config = WithYarn();
  json& rope = config["text_config"]["rope_parameters"];
  rope["attention_factor"] = 1.5;
  EXPECT_EQ(Accept(config).rope.attention_factor, 1.5f);
  rope.erase("attention_factor");
  rope["mscale"] = 1.0;
  rope["mscale_all_dim"] = 1.0;
  EXPECT_EQ(Accept(config).rope.attention_factor, 1.0f);
  rope.erase("original_max_position_embeddings");
  EXPECT_EQ(Accept(config).rope.yarn_original_positions, 262144);
  rope["factor"] = 0.5;
  EXPECT_THAT(RefusalOf(config), HasSubstr("rope_parameters.factor is 0.5"));
  rope.erase("factor");
  EXPECT_THAT(RefusalOf(config), HasSubstr("rope_parameters.factor is missing"));
}

TEST(Rope, OlderPlace_RopeScaling) {
  json config = Dense();
  json& text = config["text_config"];
  text.erase("rope_parameters");
  text["rope_theta"] = 1e7;
  text["partial_rotary_factor"] = 0.25;
  text["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 262144}, {"mrope_section", {11, 11, 10}}};
  EXPECT_EQ(Accept(config).rope.InverseFrequencies(), Accept(WithYarn()).rope.InverseFrequencies());
  text["rope_scaling"] = nullptr;
  EXPECT_EQ(Accept(config).rope.InverseFrequencies(), Accept(Dense()).rope.InverseFrequencies());
  text["rope_scaling"] = {{"type", "mrope"}, {"mrope_section", {11, 11, 10}}};
  EXPECT_EQ(Accept(config).rope.yarn_factor, 1.0f);
}

TEST(Rope, UnknownType_Refused) {
  EXPECT_THAT(RefusalWith(Dense(), "/text_config/rope_parameters/rope_type", "longrope"),
              HasSubstr("rope_type \"longrope\" is not supported; known are default and yarn"));
}

// --- Files --------------------------------------------------------------------------------------------------------------------------

TEST(LoadConfig, GoldenCheckpoints_Parsed) {
  const std::string root = std::string(AVOCET_TEST_DATA) + "/golden/checkpoints/";
  const auto dense = LoadConfig(root + "a-dense");
  ASSERT_TRUE(dense) << dense.error().message;
  EXPECT_TRUE(dense->tied_head);
  EXPECT_EQ(dense->intermediate, 160);
  const auto moe = LoadConfig(root + "b-moe-mtp");
  ASSERT_TRUE(moe) << moe.error().message;
  EXPECT_EQ(moe->rope.rotary_dim, 16);
  EXPECT_THAT(moe->rope.mrope_section, ElementsAre(3, 3, 2));
  EXPECT_EQ(moe->num_mtp_layers, 1);
  const auto vision = LoadConfig(root + "c-vl-moe-mtp");
  ASSERT_TRUE(vision) << vision.error().message;
  EXPECT_EQ(vision->vision->num_positions, 256);
  EXPECT_EQ(vision->image_token_id, 652);
}

TEST(LoadConfig, MessageNamesTheFile) {
  TempDir dir;
  const auto refusal = [&] {
    const auto config = LoadConfig(dir.path());
    return config ? "accepted" : config.error().message;
  };
  EXPECT_THAT(refusal(), HasSubstr("no file config.json"));
  dir.Write("config.json", "{");
  EXPECT_EQ(refusal(), dir.path() + "/config.json: not JSON at byte 2");
  dir.Write("config.json", std::string(limits::kConfigBytesMax + 1, ' '));
  EXPECT_THAT(refusal(), HasSubstr("at most 4194304 are read"));
  std::filesystem::remove(dir.File("config.json"));
  std::filesystem::create_symlink("/etc/hostname", dir.File("config.json"));
  EXPECT_THAT(refusal(), HasSubstr("is a link out of the model folder"));
}

TEST(GenerationConfig, PublishedFile_Read) {
  const auto config = ParseGenerationConfig(
      R"({"bos_token_id":248044,"do_sample":true,"eos_token_id":[248046,248044],"pad_token_id":248044,"temperature":1.0,"top_k":20,"top_p":0.95,
          "transformers_version":"5.0"})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->temperature, 1.0);
  EXPECT_EQ(config->top_k, 20);
  EXPECT_EQ(config->top_p, 0.95);
  EXPECT_EQ(config->min_p, std::nullopt);
  EXPECT_EQ(config->max_new_tokens, std::nullopt);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(248046, 248044));
  EXPECT_THAT(ParseGenerationConfig(R"({"eos_token_id":7,"top_k":null})")->eos_token_ids, ElementsAre(7));
}

TEST(GenerationConfig, WrongValue_NamesTheKey) {
  const auto refusal = [](const std::string& text) {
    const auto config = ParseGenerationConfig(text);
    return config ? "accepted" : config.error().message;
  };
  EXPECT_THAT(refusal(R"({"temperature":-1})"), HasSubstr("temperature is -1"));
  EXPECT_THAT(refusal(R"({"temperature":"hot"})"), HasSubstr("temperature is \"hot\", wanted a number"));
  EXPECT_THAT(refusal(R"({"top_p":1.01})"), HasSubstr("top_p is 1.01"));
  EXPECT_THAT(refusal(R"({"top_k":2.5})"), HasSubstr("top_k is 2.5"));
  EXPECT_THAT(refusal(R"({"eos_token_id":[1,"x"]})"), HasSubstr("eos_token_id is \"x\""));
  EXPECT_THAT(refusal(R"({"eos_token_id":[-3]})"), HasSubstr("eos_token_id is -3"));
  EXPECT_THAT(refusal(json{{"eos_token_id", std::vector<int>(65, 1)}}.dump()), HasSubstr("lists 65 numbers, at most 64"));
  EXPECT_THAT(refusal("[]"), HasSubstr("holds array"));
}

TEST(GenerationConfig, AbsentFile_GivesNothing) {
  TempDir dir;
  const auto config = LoadGenerationConfig(dir.path());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_TRUE(config->eos_token_ids.empty());
  EXPECT_EQ(config->temperature, std::nullopt);
  dir.Write("generation_config.json", "nonsense");
  EXPECT_THAT(LoadGenerationConfig(dir.path()).error().message, HasSubstr("generation_config.json: not JSON"));
}

}  // namespace
}  // namespace avocet::model
