#include "tokenizer/jinja/attribute_path.h"

#include <algorithm>

#include "tokenizer/jinja/eval.h"
#include "tokenizer/jinja/split.h"
#include "tokenizer/jinja/text.h"

namespace avocet::tokenizer::jinja {
namespace {

bool IsNumber(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

AttributePath AttributePath::Of(const Value* attribute) {
  AttributePath path;
  if (attribute == nullptr || attribute->is_none()) return path;
  if (!attribute->is_string()) {
    path.parts_.push_back(*attribute);
    return path;
  }
  for (const std::string_view part : Split(attribute->text(), ".", -1)) {
    const std::optional<Integer> number = IsNumber(part) ? ParseInteger(part, 10) : std::nullopt;
    path.parts_.push_back(number ? Value::Int(*number) : Value::String(std::string(part)));
  }
  return path;
}

Result<Value> AttributePath::Get(Evaluator& evaluator, const Value& item, Case letters) const {
  Value value = item;
  for (const Value& part : parts_) {
    AVOCET_TRY_VOID(evaluator.budget().Steps(1));
    AVOCET_TRY(value, evaluator.GetItem(value, part));
    if (default_ && value.is_undefined()) value = *default_;
  }
  if (letters == Case::kIgnored && value.is_string()) {
    AVOCET_TRY_VOID(evaluator.budget().Text(value.text().size() * kCaseGrowthMax));
    return Value::String(Lower(value.text()));
  }
  return value;
}

std::vector<AttributePath> AttributePaths(const Value* attribute) {
  std::vector<AttributePath> paths;
  if (attribute == nullptr || !attribute->is_string()) return {AttributePath::Of(attribute)};
  for (const std::string_view part : Split(attribute->text(), ",", -1)) {
    const Value path = Value::String(std::string(part));
    paths.push_back(AttributePath::Of(&path));
  }
  return paths;
}

}  // namespace avocet::tokenizer::jinja
