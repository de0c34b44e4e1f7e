// Generated text of any kind: cut in two at any place, or into bytes, it is split into the same thoughts, content and calls.
// The first byte chooses the options.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/json_input.h"
#include "server/output_parser.h"

namespace {

using namespace avocet::server;  // NOLINT(google-build-using-namespace): one program

std::string Joined(const OutputPiece& piece) {
  std::string text = "reasoning " + piece.reasoning + "\ncontent " + piece.content;
  for (const ToolCallPiece& call : piece.tool_calls) text += "\ncall " + call.name + " " + call.arguments;
  return text;
}

OutputPiece Parse(const OutputParserOptions& options, std::string_view text, size_t step, size_t first) {
  OutputParser parser(options);
  OutputPiece all = parser.Push(text.substr(0, first));
  for (size_t i = first; i < text.size(); i += step) all.Append(parser.Push(text.substr(i, step)));
  all.Append(parser.Finish());
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || size > 2048) return 0;
  OutputParserOptions options;
  options.reasoning = (data[0] & 1) != 0 ? ReasoningFormat::kThinkTags : ReasoningFormat::kNone;
  options.starts_in_reasoning = (data[0] & 2) != 0;
  options.tools = (data[0] & 4) != 0 ? ToolFormat::kFunctionTags : (data[0] & 8) != 0 ? ToolFormat::kJsonTags : ToolFormat::kNone;
  options.drops_gap = (data[0] & 16) != 0;
  options.schemas["f"] = OrderedJson::parse(R"({"properties":{"a":{"type":"integer"},"b":{"type":"object"}}})");
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const OutputPiece whole = Parse(options, text, text.size() + 1, text.size());
  for (const ToolCallPiece& call : whole.tool_calls) {
    CHECK(ParseJson(call.arguments, "arguments").has_value(), "arguments that are no JSON: {}", call.arguments);
  }
  const std::string wanted = Joined(whole);
  CHECK(Joined(Parse(options, text, 1, 0)) == wanted, "byte by byte it is another answer");
  const size_t cut = size % (text.size() + 1);
  CHECK(Joined(Parse(options, text, text.size() + 1, cut)) == wanted, "cut at {} it is another answer", cut);
  return 0;
}
