#include "cli/json_text.h"

#include <algorithm>

#include "base/limits.h"
#include "base/printable.h"
#include "cli/human_number.h"

namespace avocet::cli {
namespace {

// Brackets outside strings; enough to bound recursion, whatever else is wrong with the text.
int32_t NestingOf(std::string_view text) {
  int32_t depth = 0;
  int32_t deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

void Merge(const Json& update, Lists lists, const std::string& prefix, Json* target, std::vector<std::string>* replaced) {
  for (const auto& [key, value] : update.items()) {
    const std::string path = prefix.empty() ? key : prefix + "." + key;
    const auto place = target->find(key);
    if (place == target->end()) {
      (*target)[key] = value;
    } else if (value.is_object() && place->is_object()) {
      Merge(value, lists, path, &*place, replaced);
    } else if (lists == Lists::kAppend && value.is_array() && place->is_array()) {
      place->insert(place->end(), value.begin(), value.end());
    } else {
      replaced->push_back(path);
      *place = value;
    }
  }
}

}  // namespace

Result<Json> ParseJson(std::string_view text) {
  if (NestingOf(text) > limits::kJsonDepthMax) {
    return Fail(Errc::kInvalidArgument, "JSON is nested deeper than {} levels", limits::kJsonDepthMax);
  }
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    // The library's text begins with an id in brackets that says nothing to a user.
    std::string_view reason = error.what();
    if (const size_t bracket = reason.find("] "); bracket != std::string_view::npos) reason.remove_prefix(bracket + 2);
    return Fail(Errc::kInvalidArgument, "'{}' is no valid JSON: {}", Printable(text), Printable(reason, 200));
  }
}

Json ParseLooseValue(std::string_view text) {
  if (auto json = ParseJson(text)) return *std::move(json);
  if (const auto number = ParseHumanInt(text)) return *number;
  return std::string(text);
}

std::vector<std::string> MergeJson(const Json& update, Lists lists, Json* target) {
  std::vector<std::string> replaced;
  Merge(update, lists, {}, target, &replaced);
  return replaced;
}

}  // namespace avocet::cli
