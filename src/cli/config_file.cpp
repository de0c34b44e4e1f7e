#include "cli/config_file.h"

#include <array>
#include <exception>
#include <fstream>
#include <optional>

#include <yaml-cpp/yaml.h>
#include <nlohmann/json.hpp>

#include "base/printable.h"

namespace avocet::cli {
namespace {

using Json = nlohmann::ordered_json;

// A file of flags is a page or two; an alias may repeat a part of it, but not without end.
constexpr size_t kFileBytesMax = size_t{1} << 20;
constexpr int32_t kNodesMax = 10'000;
constexpr int32_t kDepthMax = 32;

// What a plain (unquoted) YAML scalar means; quoted ones are text. The words are those of YAML 1.1, which such files are written for.
Json ScalarToJson(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") return text;
  constexpr auto kTrue = std::to_array<std::string_view>({"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"});
  constexpr auto kFalse = std::to_array<std::string_view>({"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"});
  for (const std::string_view word : kTrue) {
    if (text == word) return true;
  }
  for (const std::string_view word : kFalse) {
    if (text == word) return false;
  }
  // Numbers as JSON writes them; everything else (1k, 0o17, names, paths) stays text.
  const Json number = Json::parse(text, nullptr, false);
  return number.is_number() ? number : Json(text);
}

Result<Json> NodeToJson(const YAML::Node& node, int32_t depth, int32_t* num_nodes) {
  if (depth > kDepthMax) return Fail(Errc::kInvalidArgument, "nested deeper than {} levels", kDepthMax);
  if (++*num_nodes > kNodesMax) return Fail(Errc::kInvalidArgument, "more than {} values", kNodesMax);
  if (node.IsScalar()) return ScalarToJson(node);
  if (node.IsSequence()) {
    Json list = Json::array();
    for (const YAML::Node& item : node) {
      AVOCET_TRY(Json value, NodeToJson(item, depth + 1, num_nodes));
      list.push_back(std::move(value));
    }
    return list;
  }
  if (node.IsMap()) {
    Json object = Json::object();
    for (const auto& item : node) {
      if (!item.first.IsScalar()) return Fail(Errc::kInvalidArgument, "a key that is no plain word");
      AVOCET_TRY(object[item.first.Scalar()], NodeToJson(item.second, depth + 1, num_nodes));
    }
    return object;
  }
  return Json(nullptr);
}

// The text of a value as it would stand on a command line.
std::string AsArgument(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::optional<ConfigEntry> EntryOf(const std::string& key, const YAML::Node& node, const Json& value) {
  using Kind = ConfigEntry::Kind;
  if (value.is_null()) return std::nullopt;
  if (value.is_boolean()) return ConfigEntry{key, value.get<bool>() ? Kind::kTrue : Kind::kFalse, {}};
  if (value.is_object()) return ConfigEntry{key, Kind::kMapping, {value.dump()}};
  if (!value.is_array()) return ConfigEntry{key, Kind::kText, {node.Scalar()}};
  ConfigEntry entry{key, Kind::kList, {}};
  for (size_t i = 0; i < value.size(); ++i) entry.values.push_back(node[i].IsScalar() ? node[i].Scalar() : AsArgument(value[i]));
  return entry;
}

Result<std::vector<ConfigEntry>> EntriesOf(const YAML::Node& root, const std::string& name) {
  std::vector<ConfigEntry> entries;
  if (!root.IsDefined() || root.IsNull()) return entries;
  if (!root.IsMap()) return Fail(Errc::kInvalidArgument, "{}: a mapping of flags to values is expected", name);
  int32_t num_nodes = 0;
  for (const auto& item : root) {
    if (!item.first.IsScalar()) return Fail(Errc::kInvalidArgument, "{}: a key that is no plain word", name);
    const std::string& key = item.first.Scalar();
    Result<Json> value = NodeToJson(item.second, 1, &num_nodes);
    if (!value) return Fail(Errc::kInvalidArgument, "{}: {}: {}", name, Printable(key), value.error().message);
    if (auto entry = EntryOf(key, item.second, *value)) entries.push_back(*std::move(entry));
  }
  return entries;
}

}  // namespace

Result<std::vector<ConfigEntry>> ParseConfigText(const std::string& text, const std::string& name) {
  if (text.size() > kFileBytesMax) return Fail(Errc::kInvalidArgument, "{} has more than {} bytes", name, kFileBytesMax);
  try {
    return EntriesOf(YAML::Load(text), name);
  } catch (const std::exception& error) {  // of yaml-cpp, and of JSON for text that is not UTF-8
    return Fail(Errc::kInvalidArgument, "{}: {}", name, Printable(error.what(), 200));
  }
}

Result<std::vector<ConfigEntry>> LoadConfigFile(const std::string& path) {
  if (!path.ends_with(".yaml") && !path.ends_with(".yml")) {
    return Fail(Errc::kInvalidArgument, "--config takes a file that ends in .yaml or .yml, got {}", Printable(path));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return Fail(Errc::kNotFound, "cannot read the file {} of --config", Printable(path));
  std::string text(kFileBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return Fail(Errc::kIo, "cannot read the file {} of --config", Printable(path));
  text.resize(static_cast<size_t>(file.gcount()));
  return ParseConfigText(text, Printable(path));
}

}  // namespace avocet::cli
