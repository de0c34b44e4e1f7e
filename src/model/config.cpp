#include "model/config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <span>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/limits.h"
#include "base/printable.h"
#include "weights/model_folder.h"

namespace avocet::model {
namespace {

using Json = nlohmann::json;

// --- Text to JSON -------------------------------------------------------------------------------------------------------------------

bool NestsDeeperThan(std::string_view text, int32_t depth_max) {
  int32_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > depth_max) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

Result<Json> ParseObject(std::string_view text) {
  if (text.size() > limits::kConfigBytesMax) {
    return Fail(Errc::kCorrupt, "{} bytes of JSON, at most {} are read", text.size(), limits::kConfigBytesMax);
  }
  if (NestsDeeperThan(text, limits::kJsonDepthMax)) return Fail(Errc::kCorrupt, "nests deeper than {} levels", limits::kJsonDepthMax);
  try {
    Json json = Json::parse(text);
    if (!json.is_object()) return Fail(Errc::kCorrupt, "holds {} where an object is wanted", json.type_name());
    return json;
  } catch (const Json::parse_error& error) {
    return Fail(Errc::kCorrupt, "not JSON at byte {}", error.byte);
  } catch (const Json::exception&) {
    return Fail(Errc::kCorrupt, "a number is out of range");
  }
}

// --- Reading fields -----------------------------------------------------------------------------------------------------------------

std::string Quote(const Json& value) {
  if (value.is_structured()) return value.is_array() ? "a list" : "an object";
  return Printable(value.dump(), 60);
}

// Reads the fields of one object. The first thing wrong is kept, later reads then return zero: a section reads its fields one after the
// other and checks ok() once, before it computes with them. null counts as absent.
class Fields {
 public:
  // `fallback`: where a field is looked for when the object lacks it.
  Fields(const Json& object, std::string path, const Json* fallback = nullptr)
      : object_(object), path_(path.empty() ? "" : std::move(path) + "."), fallback_(fallback) {}

  bool ok() const { return !error_; }
  std::unexpected<Error> TakeError() { return std::unexpected(*std::move(error_)); }

  const Json* Find(std::string_view key) const {
    for (const Json* object : {&object_, fallback_}) {
      if (object == nullptr) continue;
      const auto it = object->find(key);
      if (it != object->end() && !it->is_null()) return &*it;
    }
    return nullptr;
  }
  bool Has(std::string_view key) const { return Find(key) != nullptr; }

  int32_t Int(std::string_view key, int32_t min, int32_t max) {
    const Json* value = Find(key);
    return value == nullptr ? Missing(key) : ToInt(key, *value, min, max);
  }
  int32_t IntOr(std::string_view key, int32_t absent, int32_t min, int32_t max) {
    const Json* value = Find(key);
    return value == nullptr ? absent : ToInt(key, *value, min, max);
  }
  double Number(std::string_view key, double min, double max) {
    const Json* value = Find(key);
    return value == nullptr ? Missing(key) : ToNumber(key, *value, min, max);
  }
  double NumberOr(std::string_view key, double absent, double min, double max) {
    const Json* value = Find(key);
    return value == nullptr ? absent : ToNumber(key, *value, min, max);
  }
  bool BoolOr(std::string_view key, bool absent) {
    const Json* value = Find(key);
    if (value == nullptr) return absent;
    if (!value->is_boolean()) return Refuse("{}{} is {}, wanted true or false", path_, key, Quote(*value)) != 0;
    return value->get<bool>();
  }
  std::string StringOr(std::string_view key, std::string_view absent) {
    const Json* value = Find(key);
    if (value == nullptr) return std::string(absent);
    if (value->is_string()) return value->get<std::string>();
    Refuse("{}{} is {}, wanted a string", path_, key, Quote(*value));
    return {};
  }
  // A list of integers; a single integer counts as a list of one. Absent: empty.
  std::vector<int32_t> Ints(std::string_view key, int32_t min, int32_t max, size_t count_max) {
    const Json* value = Find(key);
    if (value == nullptr) return {};
    if (!value->is_array()) return {ToInt(key, *value, min, max)};
    if (value->size() > count_max) Refuse("{}{} lists {} numbers, at most {} are allowed", path_, key, value->size(), count_max);
    std::vector<int32_t> ints;
    for (size_t i = 0; ok() && i < value->size(); ++i) ints.push_back(ToInt(key, (*value)[i], min, max));
    return ints;
  }
  // Absent or the only supported value, else refused with the reason.
  void OnlyBool(std::string_view key, bool supported, std::string_view reason) {
    if (BoolOr(key, supported) != supported && ok()) Refuse("{}{} is {}, which is not supported: {}", path_, key, !supported, reason);
  }
  void OnlyString(std::string_view key, std::initializer_list<std::string_view> supported) {
    const std::string value = StringOr(key, *supported.begin());
    if (!ok() || std::ranges::find(supported, value) != supported.end()) return;
    Refuse("{}{} is \"{}\", supported is \"{}\"", path_, key, Printable(value), *supported.begin());
  }
  void OnlyEmptyList(std::string_view key, std::string_view reason) {
    const Json* value = Find(key);
    if (value != nullptr && !(value->is_array() && value->empty())) {
      Refuse("{}{} is not empty, which is not supported: {}", path_, key, reason);
    }
  }

  // Keeps the first message; returns zero for whatever was to be read.
  template <typename... Args>
  int32_t Refuse(fmt::format_string<Args...> format, Args&&... args) {
    if (ok()) error_ = Error{Errc::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...), {}};
    return 0;
  }
  std::string PathOf(std::string_view key) const { return path_ + std::string(key); }

 private:
  int32_t Missing(std::string_view key) { return Refuse("{}{} is missing", path_, key); }

  int32_t ToInt(std::string_view key, const Json& value, int32_t min, int32_t max) {
    if (!value.is_number_integer()) return Refuse("{}{} is {}, wanted a whole number", path_, key, Quote(value));
    // An unsigned value beyond int64 would wrap: it is above every bound here.
    const bool is_huge = value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int32_t>::max());
    const int64_t number = is_huge ? 0 : value.get<int64_t>();
    if (is_huge || number < min || number > max) return Refuse("{}{} is {}, allowed are {} to {}", path_, key, Quote(value), min, max);
    return static_cast<int32_t>(number);
  }
  double ToNumber(std::string_view key, const Json& value, double min, double max) {
    if (!value.is_number()) return Refuse("{}{} is {}, wanted a number", path_, key, Quote(value));
    const double number = value.get<double>();
    if (!(number >= min && number <= max)) return Refuse("{}{} is {}, allowed are {} to {}", path_, key, Quote(value), min, max);
    return number;
  }

  const Json& object_;
  std::string path_;
  const Json* fallback_;
  std::optional<Error> error_;
};

// --- The sections of config.json ----------------------------------------------------------------------------------------------------

enum class MlpKind : uint8_t { kDense, kMoe };

struct KnownName {
  std::string_view name;
  MlpKind mlp;
};
constexpr std::array kArchitectures = {
    KnownName{"Qwen3_5ForConditionalGeneration", MlpKind::kDense},
    KnownName{"Qwen3_5MoeForConditionalGeneration", MlpKind::kMoe},
    KnownName{"Qwen3_5ForCausalLM", MlpKind::kDense},
    KnownName{"Qwen3_5MoeForCausalLM", MlpKind::kMoe},
};
constexpr std::array kModelTypes = {
    KnownName{"qwen3_5", MlpKind::kDense},
    KnownName{"qwen3_5_moe", MlpKind::kMoe},
    KnownName{"qwen3_5_text", MlpKind::kDense},
    KnownName{"qwen3_5_moe_text", MlpKind::kMoe},
};

const KnownName* FindName(std::span<const KnownName> known, std::string_view name) {
  const auto it = std::ranges::find(known, name, &KnownName::name);
  return it == known.end() ? nullptr : &*it;
}

std::string Join(std::span<const KnownName> known) {
  std::string text;
  for (const KnownName& entry : known) text += (text.empty() ? "" : ", ") + std::string(entry.name);
  return text;
}

// Sets architecture and model_type; says which MLP the model has. Each may be absent, not both; they must agree.
Result<MlpKind> ParseIdentity(const Json& root, const Json& text, ModelConfig& config) {
  Fields fields(root, "");
  const KnownName* architecture = nullptr;
  if (const Json* names = fields.Find("architectures")) {
    if (!names->is_array() || names->empty())
      return Fail(Errc::kInvalidArgument, "architectures is {}, wanted a list of names", Quote(*names));
    for (const Json& name : *names) {
      if (architecture == nullptr && name.is_string()) architecture = FindName(kArchitectures, name.get<std::string>());
    }
    if (architecture == nullptr) {
      return Fail(Errc::kUnsupported, "architecture {} is not supported; known are {}", Quote(names->front()), Join(kArchitectures));
    }
  }
  const KnownName* type = nullptr;
  for (const Json* object : {&root, &text}) {
    Fields owner(*object, object == &root ? "" : "text_config");
    const std::string name = owner.StringOr("model_type", "");
    if (!owner.ok()) return owner.TakeError();
    if (name.empty()) continue;
    const KnownName* found = FindName(kModelTypes, name);
    if (found == nullptr) {
      return Fail(Errc::kUnsupported, "{} \"{}\" is not supported; known are {}", owner.PathOf("model_type"), Printable(name),
                  Join(kModelTypes));
    }
    if (type == nullptr) type = found;
    if (found->mlp != (architecture != nullptr ? architecture : type)->mlp) {
      return Fail(Errc::kInvalidArgument, "{} \"{}\" contradicts \"{}\": one is dense, the other has experts", owner.PathOf("model_type"),
                  name, architecture != nullptr ? architecture->name : type->name);
    }
  }
  if (architecture == nullptr && type == nullptr)
    return Fail(Errc::kInvalidArgument, "neither architectures nor model_type names the model");
  const MlpKind mlp = (architecture != nullptr ? architecture : type)->mlp;
  if (architecture == nullptr) {
    const bool is_multimodal = &root != &text;
    const auto it = std::ranges::find_if(kArchitectures, [&](const KnownName& known) {
      return known.mlp == mlp && known.name.ends_with(is_multimodal ? "ForConditionalGeneration" : "ForCausalLM");
    });
    architecture = &*it;
  }
  config.architecture = architecture->name;
  config.model_type = type != nullptr ? type->name : mlp == MlpKind::kMoe ? "qwen3_5_moe" : "qwen3_5";
  return mlp;
}

// One config group of compressed-tensors: int8 per channel, left operands int8 per token, both symmetric.
bool IsInt8Group(const Json& group) {
  const auto is_int8 = [&group](const char* key, const char* strategy, bool is_dynamic) {
    const auto found = group.find(key);
    if (found == group.end() || !found->is_object()) return false;
    const auto is = [&found](const char* name, const Json& wanted) { return found->contains(name) && (*found)[name] == wanted; };
    return is("num_bits", 8) && is("type", "int") && is("symmetric", true) && is("strategy", strategy) &&
           (is("dynamic", is_dynamic) || (!is_dynamic && !found->contains("dynamic")));
  };
  return group.is_object() && is_int8("weights", "channel", false) && is_int8("input_activations", "token", true);
}

// quant_method fp8: E4M3 with a scale for every block of weights.
Result<int32_t> ReadFp8Block(const Json& quantization, std::string_view key) {
  constexpr int32_t kBlockMax = 4096;
  const auto is_absent_or = [&quantization](const char* name, const Json& wanted) {
    return !quantization.contains(name) || quantization[name].is_null() || quantization[name] == wanted;
  };
  const auto block = quantization.find("weight_block_size");
  const bool has_block = block != quantization.end() && block->is_array() && block->size() == 2 && (*block)[0].is_number_integer() &&
                         (*block)[0] == (*block)[1] && (*block)[0] > 0 && (*block)[0] <= kBlockMax;
  if (!has_block || !is_absent_or("fmt", "e4m3") || !is_absent_or("activation_scheme", "dynamic")) {
    return Fail(Errc::kUnsupported, "{} asks for fp8 of another kind: served is e4m3 with a square weight_block_size such as [128, 128]",
                key);
  }
  return (*block)[0].get<int32_t>();
}

// What quantization_config asks for. Served: FP8 in blocks, and compressed-tensors int-quantized, W8A8 per channel and token; its int8
// tensors are told by their dtype. The int8 checkpoints of msModelSlim have no such entry (weights/quantization.h).
Result<void> ReadQuantization(const Json& root, const Json& text, ModelConfig& config) {
  for (const Json* object : {&root, &text}) {
    const Fields fields(*object, "");
    for (const std::string_view key : {"quantization_config", "compression_config"}) {
      const Json* found = fields.Find(key);
      if (found == nullptr) continue;
      const Json quantization = found->is_object() ? *found : Json::object();
      const auto text_of = [&quantization](const char* name) {
        return quantization.contains(name) ? Quote(quantization[name]) : std::string("none");
      };
      if (text_of("quant_method") == Quote(Json("fp8"))) {
        AVOCET_TRY(config.fp8_block, ReadFp8Block(quantization, key));
        return {};
      }
      const auto groups = quantization.find("config_groups");
      const bool has_groups = groups != quantization.end() && groups->is_object() && !groups->empty();
      if (text_of("quant_method") != Quote(Json("compressed-tensors")) || text_of("format") != Quote(Json("int-quantized")) ||
          !has_groups) {
        return Fail(
            Errc::kUnsupported,
            "{} asks for quant_method {}, format {}: served are bf16, f16 and f32 checkpoints, fp8 in blocks, int8 of msModelSlim, and "
            "int8 of compressed-tensors (int-quantized, per channel and token)",
            key, text_of("quant_method"), text_of("format"));
      }
      for (const auto& [name, group] : groups->items()) {
        if (IsInt8Group(group)) continue;
        return Fail(Errc::kUnsupported,
                    "{}: config group {} is not int8 per channel with dynamic int8 per token, symmetric, which is what is served", key,
                    Printable(name));
      }
      if (const auto cache = quantization.find("kv_cache_scheme"); cache != quantization.end() && !cache->is_null()) {
        return Fail(Errc::kUnsupported, "{}: a kv_cache_scheme is not served; null is", key);
      }
      config.int8_by_dtype = true;
      return {};
    }
  }
  return {};
}

// Where a rope setting may stand: newest place first, as the reference resolves them.
struct RopePlaces {
  const Json* scaling = nullptr;     // rope_scaling, the older name; wins when both are there
  const Json* parameters = nullptr;  // rope_parameters
  const Json& text;
};

Result<RopePlaces> FindRopePlaces(const Json& text) {
  RopePlaces places{.text = text};
  for (const auto& [key, place] : {std::pair("rope_scaling", &places.scaling), std::pair("rope_parameters", &places.parameters)}) {
    const auto it = text.find(key);
    if (it == text.end() || it->is_null()) continue;
    if (!it->is_object()) return Fail(Errc::kInvalidArgument, "{} is {}, wanted an object", key, Quote(*it));
    *place = &*it;
  }
  return places;
}

void ParseYarn(Fields& fields, int32_t max_positions, RopeConfig& rope) {
  rope.yarn_original_positions = fields.IntOr("original_max_position_embeddings", max_positions, 1, limits::kPositionsMax);
  rope.yarn_factor = static_cast<float>(fields.Number("factor", 1, 1024));
  rope.yarn_beta_fast = static_cast<float>(fields.NumberOr("beta_fast", 32, 1e-3, 1e6));
  rope.yarn_beta_slow = static_cast<float>(fields.NumberOr("beta_slow", 1, 1e-3, 1e6));
  rope.yarn_truncate = fields.BoolOr("truncate", true);
  // The reference's default, and its two older parameters.
  const auto scale = [&rope](double m) {
    return rope.yarn_factor <= 1 ? 1.0 : 0.1 * m * std::log(static_cast<double>(rope.yarn_factor)) + 1.0;
  };
  const double mscale = fields.NumberOr("mscale", 0, 0, 100);
  const double mscale_all = fields.NumberOr("mscale_all_dim", 0, 0, 100);
  const double attention_factor = mscale > 0 && mscale_all > 0 ? scale(mscale) / scale(mscale_all) : scale(1);
  rope.attention_factor = static_cast<float>(fields.NumberOr("attention_factor", attention_factor, 1e-3, 1e3));
}

void ParseMropeSection(Fields& fields, RopeConfig& rope) {
  const int32_t num_frequencies = rope.rotary_dim / 2;
  rope.mrope_section = fields.Ints("mrope_section", 0, limits::kHeadDimMax, 3);
  rope.mrope_interleaved = fields.BoolOr("mrope_interleaved", true);
  if (!fields.ok()) return;
  // The reference's default belongs to 32 frequencies; a text model of another width does not need sections.
  if (!fields.Has("mrope_section") && num_frequencies == 32) rope.mrope_section = {11, 11, 10};
  if (!fields.Has("mrope_section") && num_frequencies != 32) return;
  int32_t sum = 0;
  for (const int32_t section : rope.mrope_section) sum += section;
  if (rope.mrope_section.size() != 3 || sum != num_frequencies) {
    fields.Refuse("{} has {} numbers with sum {}, wanted 3 with sum {} (half of the {} rotary dimensions)", fields.PathOf("mrope_section"),
                  rope.mrope_section.size(), sum, num_frequencies, rope.rotary_dim);
  }
}

Result<RopeConfig> ParseRope(const Json& text, int32_t head_dim, int32_t max_positions) {
  AVOCET_TRY(const RopePlaces places, FindRopePlaces(text));
  static const Json kNothing = Json::object();
  const Json& first = places.scaling != nullptr ? *places.scaling : places.parameters != nullptr ? *places.parameters : kNothing;
  Fields fields(first, places.scaling != nullptr ? "rope_scaling" : "rope_parameters", places.parameters);
  Fields outside(text, "");

  RopeConfig rope;
  Fields& theta_owner = fields.Has("rope_theta") ? fields : outside;
  rope.theta = static_cast<float>(theta_owner.Number("rope_theta", 1.001, 1e12));
  Fields& factor_owner = fields.Has("partial_rotary_factor") ? fields : outside;
  const double factor = factor_owner.NumberOr("partial_rotary_factor", 0.25, 0, 1);
  rope.rotary_dim = static_cast<int32_t>(head_dim * factor);
  if (rope.rotary_dim < 2 || rope.rotary_dim % 2 != 0) {
    fields.Refuse("partial_rotary_factor {} of head_dim {} rotates {} dimensions, wanted an even number", factor, head_dim,
                  rope.rotary_dim);
  }
  ParseMropeSection(fields, rope);

  const std::string type = fields.StringOr(fields.Has("rope_type") ? "rope_type" : "type", "default");
  if (type == "yarn") {
    ParseYarn(fields, max_positions, rope);
  } else if (type != "default" && type != "mrope") {
    fields.Refuse("rope_type \"{}\" is not supported; known are default and yarn", Printable(type));
  }
  if (!outside.ok()) return outside.TakeError();
  if (!fields.ok()) return fields.TakeError();
  return rope;
}

Result<std::vector<LayerKind>> ParseLayers(Fields& fields, int32_t num_layers) {
  std::vector<LayerKind> layers;
  if (const Json* types = fields.Find("layer_types")) {
    if (!types->is_array() || types->size() != static_cast<size_t>(num_layers)) {
      return Fail(Errc::kInvalidArgument, "{} has {} entries, num_hidden_layers is {}", fields.PathOf("layer_types"),
                  types->is_array() ? types->size() : 0, num_layers);
    }
    for (const Json& type : *types) {
      if (type != "linear_attention" && type != "full_attention") {
        return Fail(Errc::kUnsupported, "{} holds {}, known are linear_attention and full_attention", fields.PathOf("layer_types"),
                    Quote(type));
      }
      layers.push_back(type == "full_attention" ? LayerKind::kAttention : LayerKind::kDeltaNet);
    }
  } else {
    const int32_t interval = fields.IntOr("full_attention_interval", 4, 1, limits::kLayersMax);
    if (!fields.ok()) return fields.TakeError();
    for (int32_t i = 0; i < num_layers; ++i) layers.push_back((i + 1) % interval == 0 ? LayerKind::kAttention : LayerKind::kDeltaNet);
  }
  // Both pools of the cache (pages and state slots) have a size per layer of their kind: a model without one of them is not of this family.
  for (const LayerKind kind : {LayerKind::kAttention, LayerKind::kDeltaNet}) {
    if (std::ranges::find(layers, kind) == layers.end()) {
      return Fail(Errc::kUnsupported, "none of the {} layers is a {} layer; this family has both kinds", num_layers,
                  kind == LayerKind::kAttention ? "full_attention" : "linear_attention");
    }
  }
  return layers;
}

void ParseMixers(Fields& fields, ModelConfig& config) {
  config.num_heads = fields.Int("num_attention_heads", 1, limits::kHeadsMax);
  config.num_kv_heads = fields.Int("num_key_value_heads", 1, limits::kHeadsMax);
  config.head_dim = fields.Int("head_dim", 2, limits::kHeadDimMax);
  config.linear_key_heads = fields.Int("linear_num_key_heads", 1, limits::kHeadsMax);
  config.linear_value_heads = fields.Int("linear_num_value_heads", 1, limits::kHeadsMax);
  config.linear_key_dim = fields.Int("linear_key_head_dim", 1, limits::kHeadDimMax);
  config.linear_value_dim = fields.Int("linear_value_head_dim", 1, limits::kHeadDimMax);
  config.conv_kernel = fields.Int("linear_conv_kernel_dim", 2, limits::kConvKernelMax);
  fields.OnlyBool("attn_output_gate", true, "q_proj carries a gate in this family");
  fields.OnlyBool("attention_bias", false, "attention projections have no bias in this family");
  fields.OnlyString("output_gate_type", {"swish", "silu"});
  if (!fields.ok()) return;
  if (config.head_dim % 2 != 0) fields.Refuse("{} is {}, wanted an even number", fields.PathOf("head_dim"), config.head_dim);
  if (config.num_heads % config.num_kv_heads != 0) {
    fields.Refuse("{} {} is not a multiple of num_key_value_heads {}", fields.PathOf("num_attention_heads"), config.num_heads,
                  config.num_kv_heads);
  }
  if (config.linear_value_heads % config.linear_key_heads != 0) {
    fields.Refuse("{} {} is not a multiple of linear_num_key_heads {}", fields.PathOf("linear_num_value_heads"), config.linear_value_heads,
                  config.linear_key_heads);
  }
}

void ParseMlp(Fields& fields, MlpKind kind, ModelConfig& config) {
  fields.OnlyString("hidden_act", {"silu"});
  if (kind == MlpKind::kDense) {
    config.intermediate = fields.Int("intermediate_size", 1, limits::kIntermediateMax);
    return;
  }
  MoeConfig moe;
  moe.num_experts = fields.Int("num_experts", 1, limits::kExpertsMax);
  moe.top_k = fields.Int("num_experts_per_tok", 1, limits::kTopKMax);
  moe.expert_intermediate = fields.Int("moe_intermediate_size", 1, limits::kIntermediateMax);
  moe.shared_intermediate = fields.Int("shared_expert_intermediate_size", 0, limits::kIntermediateMax);
  fields.OnlyBool("norm_topk_prob", true, "the router of this family always renormalises");
  fields.OnlyEmptyList("mlp_only_layers", "every layer of a MoE model has experts");
  if (fields.IntOr("decoder_sparse_step", 1, 0, limits::kLayersMax) != 1) {
    fields.Refuse("{} is not 1, which is not supported: every layer of a MoE model has experts", fields.PathOf("decoder_sparse_step"));
  }
  if (fields.ok() && moe.top_k > moe.num_experts) {
    fields.Refuse("{} is {}, num_experts only {}", fields.PathOf("num_experts_per_tok"), moe.top_k, moe.num_experts);
  }
  config.moe = moe;
}

Result<void> ParseText(const Json& text, const std::string& path, MlpKind mlp, ModelConfig& config) {
  Fields fields(text, path);
  config.hidden = fields.Int("hidden_size", 1, limits::kHiddenMax);
  config.num_layers = fields.Int("num_hidden_layers", 1, limits::kLayersMax);
  config.vocab_rows = fields.Int("vocab_size", 1, limits::kVocabRowsMax);
  config.max_positions = fields.Int("max_position_embeddings", 1, limits::kPositionsMax);
  config.rms_eps = static_cast<float>(fields.Number("rms_norm_eps", 1e-30, 1));
  ParseMixers(fields, config);
  ParseMlp(fields, mlp, config);
  config.num_mtp_layers = fields.IntOr("mtp_num_hidden_layers", 0, 0, limits::kDraftLayersMax);
  fields.OnlyBool("mtp_use_dedicated_embeddings", false, "the draft head shares the embedding");
  if (!fields.ok()) return fields.TakeError();
  AVOCET_TRY(config.layers, ParseLayers(fields, config.num_layers));
  AVOCET_TRY(config.rope, ParseRope(text, config.head_dim, config.max_positions));
  const double stretched = static_cast<double>(config.rope.yarn_original_positions) * static_cast<double>(config.rope.yarn_factor);
  config.max_positions = std::max(config.max_positions, static_cast<int32_t>(std::min<double>(stretched, limits::kPositionsMax)));
  return {};
}

// Fields that stand in text_config or beside it, depending on the release.
Result<void> ParseShared(const Json& root, const Json& text, ModelConfig& config) {
  Fields fields(text, "", &root);
  config.tied_head = fields.BoolOr("tie_word_embeddings", false);
  config.dtype = fields.StringOr(fields.Has("dtype") ? "dtype" : "torch_dtype", "bfloat16");
  if (config.dtype != "bfloat16" && config.dtype != "float16" && config.dtype != "float32") {
    fields.Refuse("dtype \"{}\" is not supported; known are bfloat16, float16 and float32", Printable(config.dtype));
  }
  config.eos_token_ids = fields.Ints("eos_token_id", 0, config.vocab_rows - 1, limits::kEosIdsMax);
  if (!fields.ok()) return fields.TakeError();
  return {};
}

Result<void> ParseVision(const Json& root, ModelConfig& config) {
  Fields top(root, "");
  const Json* object = top.Find("vision_config");
  if (object == nullptr || top.BoolOr("language_model_only", false) || config.architecture.ends_with("ForCausalLM")) {
    return top.ok() ? Result<void>{} : top.TakeError();
  }
  if (!object->is_object()) return Fail(Errc::kInvalidArgument, "vision_config is {}, wanted an object", Quote(*object));
  const int32_t id_max = config.vocab_rows - 1;
  config.image_token_id = top.Int("image_token_id", 0, id_max);
  config.video_token_id = top.Int("video_token_id", 0, id_max);
  config.vision_start_token_id = top.Int("vision_start_token_id", 0, id_max);
  config.vision_end_token_id = top.Int("vision_end_token_id", 0, id_max);
  if (!top.ok()) return top.TakeError();

  Fields fields(*object, "vision_config");
  VisionConfig vision;
  vision.depth = fields.Int("depth", 1, limits::kLayersMax);
  vision.hidden = fields.Int("hidden_size", 1, limits::kHiddenMax);
  vision.intermediate = fields.Int("intermediate_size", 1, limits::kIntermediateMax);
  vision.num_heads = fields.Int("num_heads", 1, limits::kHeadsMax);
  vision.patch = fields.Int("patch_size", 1, 64);
  vision.temporal_patch = fields.Int("temporal_patch_size", 1, 16);
  vision.spatial_merge = fields.Int("spatial_merge_size", 1, 16);
  vision.num_positions = fields.Int("num_position_embeddings", 1, 1 << 20);
  vision.out_hidden = fields.Int("out_hidden_size", 1, limits::kHiddenMax);
  vision.in_channels = fields.Int("in_channels", 1, 4);
  fields.OnlyString("hidden_act", {"gelu_pytorch_tanh"});
  fields.OnlyEmptyList("deepstack_visual_indexes", "this family feeds pictures in at the first layer only");
  if (!fields.ok()) return fields.TakeError();
  if (vision.hidden % vision.num_heads != 0) {
    fields.Refuse("vision_config.hidden_size {} is not a multiple of num_heads {}", vision.hidden, vision.num_heads);
  }
  const auto side = static_cast<int32_t>(std::lround(std::sqrt(vision.num_positions)));
  if (side * side != vision.num_positions) {
    fields.Refuse("vision_config.num_position_embeddings {} is not a square", vision.num_positions);
  }
  if (vision.out_hidden != config.hidden) {
    fields.Refuse("vision_config.out_hidden_size {} differs from the text hidden_size {}", vision.out_hidden, config.hidden);
  }
  if (!fields.ok()) return fields.TakeError();
  config.vision = vision;
  return {};
}

}  // namespace

int32_t ModelConfig::NumLayers(LayerKind kind) const {
  return static_cast<int32_t>(std::ranges::count(layers, kind));
}

Result<ModelConfig> ParseConfig(std::string_view json) {
  AVOCET_TRY(const Json root, ParseObject(json));
  const auto nested = root.find("text_config");
  const bool is_nested = nested != root.end() && !nested->is_null();
  if (is_nested && !nested->is_object()) return Fail(Errc::kInvalidArgument, "text_config is {}, wanted an object", Quote(*nested));
  const Json& text = is_nested ? *nested : root;

  ModelConfig config;
  AVOCET_TRY(const MlpKind mlp, ParseIdentity(root, text, config));
  AVOCET_TRY_VOID(ReadQuantization(root, text, config));
  AVOCET_TRY_VOID(ParseText(text, is_nested ? "text_config" : "", mlp, config));
  AVOCET_TRY_VOID(ParseShared(root, text, config));
  AVOCET_TRY_VOID(ParseVision(root, config));
  return config;
}

namespace {

Error WithFile(const std::string& model_dir, std::string_view name, Error error) {
  error.message = fmt::format("{}/{}: {}", model_dir, name, error.message);
  return error;
}

}  // namespace

Result<ModelConfig> LoadConfig(const std::string& model_dir) {
  AVOCET_TRY(const weights::ModelFolder folder, weights::ModelFolder::Open(model_dir));
  AVOCET_TRY(const std::string json, weights::ReadModelFile(folder, "config.json", limits::kConfigBytesMax));
  auto config = ParseConfig(json);
  if (!config) return std::unexpected(WithFile(model_dir, "config.json", std::move(config).error()));
  return config;
}

Result<GenerationConfig> ParseGenerationConfig(std::string_view json) {
  AVOCET_TRY(const Json root, ParseObject(json));
  Fields fields(root, "");
  GenerationConfig config;
  const auto number = [&fields](std::string_view key, double min, double max) {
    return fields.Has(key) ? std::optional(fields.Number(key, min, max)) : std::nullopt;
  };
  config.temperature = number("temperature", 0, 1e6);
  config.top_p = number("top_p", 0, 1);
  config.min_p = number("min_p", 0, 1);
  config.repetition_penalty = number("repetition_penalty", 1e-6, 1e6);
  // -1 and 0 both switch top-k off.
  if (fields.Has("top_k")) config.top_k = fields.Int("top_k", -1, std::numeric_limits<int32_t>::max());
  if (fields.Has("max_new_tokens")) config.max_new_tokens = fields.Int("max_new_tokens", 1, std::numeric_limits<int32_t>::max());
  config.eos_token_ids = fields.Ints("eos_token_id", 0, std::numeric_limits<int32_t>::max(), limits::kEosIdsMax);
  if (!fields.ok()) return fields.TakeError();
  return config;
}

Result<GenerationConfig> LoadGenerationConfig(const std::string& model_dir) {
  constexpr std::string_view kName = "generation_config.json";
  AVOCET_TRY(const weights::ModelFolder folder, weights::ModelFolder::Open(model_dir));
  const auto json = weights::ReadModelFile(folder, kName, limits::kConfigBytesMax);
  if (!json && json.error().code == Errc::kNotFound) return GenerationConfig{};
  if (!json) return std::unexpected(json.error());
  auto config = ParseGenerationConfig(*json);
  if (!config) return std::unexpected(WithFile(model_dir, kName, std::move(config).error()));
  return config;
}

}  // namespace avocet::model
