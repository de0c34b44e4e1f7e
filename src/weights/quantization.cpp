#include "weights/quantization.h"

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "base/limits.h"
#include "base/printable.h"
#include "weights/model_folder.h"

namespace avocet::weights {
namespace {

struct NamedType {
  std::string_view text;
  StoredType type;
};

constexpr std::array kTypes = {
    NamedType{"FLOAT", StoredType::kFloat},
    NamedType{"W8A8_DYNAMIC", StoredType::kInt8Dynamic},
    NamedType{"W8A8", StoredType::kInt8Static},
    NamedType{"W16A16S", StoredType::kOther},
    NamedType{"W8A16", StoredType::kOther},
    NamedType{"W8A8_MIX", StoredType::kOther},
    NamedType{"W4A8_DYNAMIC", StoredType::kOther},
    NamedType{"W4A4_DYNAMIC", StoredType::kOther},
    NamedType{"WFP8AFP8_DYNAMIC", StoredType::kOther},
    NamedType{"W8A8_MXFP8", StoredType::kOther},
    NamedType{"W4A8_MXFP", StoredType::kOther},
    NamedType{"W4A4_MXFP4", StoredType::kOther},
    NamedType{"W4A4_MXFP4_DUALSCALE", StoredType::kOther},
    NamedType{"C8", StoredType::kOther},
    NamedType{"FAQuant", StoredType::kOther},
    NamedType{"FLATQUANT", StoredType::kOther},
};

// Entries about the whole model, not about a tensor.
constexpr std::array<std::string_view, 9> kGlobalKeys = {
    "model_quant_type", "version",           "group_size", "kv_quant_type", "kv_cache_type",
    "fa_quant_type",    "reduce_quant_type", "metadata",   "optional",
};

}  // namespace

Result<std::optional<QuantDescription>> QuantDescription::Load(const std::string& model_dir) {
  AVOCET_TRY(const ModelFolder folder, ModelFolder::Open(model_dir));
  const Result<std::string> path = folder.Resolve(kFileName);
  if (!path && path.error().code == Errc::kNotFound) return std::optional<QuantDescription>();
  AVOCET_TRY(const std::string text, ReadModelFile(folder, kFileName, limits::kQuantDescriptionBytesMax));
  AVOCET_TRY(QuantDescription description, Parse(fmt::format("{}/{}", Printable(model_dir), kFileName), text));
  return std::optional(std::move(description));
}

Result<QuantDescription> QuantDescription::Parse(std::string_view file, std::string_view json) {
  const nlohmann::json parsed = nlohmann::json::parse(json, nullptr, false);
  if (!parsed.is_object()) return Fail(Errc::kCorrupt, "{}: expected a JSON object of tensor names and their types", file);
  QuantDescription description;
  description.types_.reserve(parsed.size());
  for (const auto& [name, value] : parsed.items()) {
    if (name == "kv_quant_type" || name == "kv_cache_type") {
      if (value.is_string() && !value.get_ref<const std::string&>().empty() && value != "FLOAT") {
        return Fail(Errc::kUnsupported, "{}: {} is {}, an int8 K/V cache of the checkpoint's own scales is not served", file, name,
                    Printable(value.get<std::string>()));
      }
    }
    if (std::ranges::find(kGlobalKeys, name) != kGlobalKeys.end()) continue;
    if (!value.is_string()) return Fail(Errc::kCorrupt, "{}: the type of tensor {} is not a string", file, Printable(name));
    const auto& text = value.get_ref<const std::string&>();
    const auto type = std::ranges::find(kTypes, text, &NamedType::text);
    if (type == kTypes.end()) {
      return Fail(Errc::kUnsupported, "{}: tensor {} has the unknown type {}; served are FLOAT, W8A8_DYNAMIC and W8A8", file,
                  Printable(name), Printable(text));
    }
    description.types_.emplace(name, static_cast<uint8_t>(type - kTypes.begin()));
  }
  return description;
}

StoredType QuantDescription::TypeOf(const std::string& tensor) const {
  const auto found = types_.find(tensor);
  return found == types_.end() ? StoredType::kFloat : kTypes[found->second].type;
}

std::string_view QuantDescription::TypeTextOf(const std::string& tensor) const {
  const auto found = types_.find(tensor);
  return found == types_.end() ? std::string_view() : kTypes[found->second].text;
}

}  // namespace avocet::weights
