#include "tokenizer/chat_template.h"

#include <utility>

#include "base/limits.h"
#include "tokenizer/jinja/content.h"
#include "tokenizer/jinja/eval.h"
#include "tokenizer/jinja/parser.h"
#include "tokenizer/utf8.h"

namespace avocet::tokenizer {

struct ChatTemplate::Impl {
  jinja::Template parsed;
  std::string name;
  bool wants_content_parts = false;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

bool ChatTemplate::wants_content_parts() const {
  return impl_->wants_content_parts;
}

Result<ChatTemplate> ChatTemplate::Parse(std::string_view source, std::string name) {
  if (source.size() > limits::kTemplateBytesMax) {
    return Fail(Errc::kInvalidArgument, "chat template {} has {} bytes; at most {} are read", name, source.size(),
                limits::kTemplateBytesMax);
  }
  if (ValidPrefixBytes(source) != source.size())
    return Fail(Errc::kInvalidArgument, "chat template {} is not UTF-8 at byte {}", name, ValidPrefixBytes(source));
  auto parsed = jinja::Parse(source);
  if (!parsed) return Fail(Errc::kInvalidArgument, "chat template {} {}", name, parsed.error().message);
  auto impl = std::make_unique<Impl>();
  impl->parsed = *std::move(parsed);
  impl->name = std::move(name);
  impl->wants_content_parts = jinja::LoopsOverContent(impl->parsed);
  return ChatTemplate(std::move(impl));
}

Result<std::string> ChatTemplate::RenderVariables(const jinja::Variables& variables) const {
  jinja::Evaluator evaluator(impl_->parsed, variables);
  Result<std::string> text = evaluator.Render();
  if (text || evaluator.is_raised()) return text;
  return Fail(Errc::kInvalidArgument, "chat template {} line {}: {}", impl_->name, evaluator.error_line(), text.error().message);
}

Result<std::string> ChatTemplate::Render(const Json& variables) const {
  if (!variables.is_object()) return Fail(Errc::kInvalidArgument, "the variables of chat template {} are not an object", impl_->name);
  jinja::Variables all;
  for (const auto& [name, value] : *variables.get_ptr<const Json::object_t*>()) all.Add(name, &value);
  return RenderVariables(all);
}

}  // namespace avocet::tokenizer
