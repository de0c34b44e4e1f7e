// Generated text to reasoning, content and tool calls, as it comes. One incremental parser serves streamed and whole answers: the
// pieces of Push and Finish, joined, are the same for every way of cutting the text, because a byte is only released once nothing
// that may follow can change its meaning. Format: serving.md 3 (the family's `qwen3` reasoning and `qwen3_coder` tool markup).
//
//   thoughts</think>content<tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>\n</tool_call>
//
// Owner: the io thread of the session. Knows nothing of HTTP.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "server/output_format.h"

namespace avocet::server {

using OrderedJson = nlohmann::ordered_json;

struct OutputParserOptions {
  ReasoningFormat reasoning = ReasoningFormat::kNone;
  bool starts_in_reasoning = false;  // the prompt ends inside an open think block
  // The answer follows a grammar: the blank line between it and the thoughts is no part of it.
  bool drops_gap = false;
  ToolFormat tools = ToolFormat::kNone;
  // Parameter schemas by function name: the `parameters` object of each tool, for converting values.
  std::map<std::string, OrderedJson> schemas;
};

// A piece of one tool call. `name` stands in the first piece only; the joined arguments are a JSON object.
struct ToolCallPiece {
  int32_t index = 0;
  std::string name;
  std::string arguments;
  std::string id = {};  // given by whoever sends it, with the name
};

struct OutputPiece {
  std::string reasoning;
  std::string content;
  std::vector<ToolCallPiece> tool_calls;

  bool empty() const { return reasoning.empty() && content.empty() && tool_calls.empty(); }
  void Append(OutputPiece&& later);
};

class OutputParser {
 public:
  explicit OutputParser(OutputParserOptions options);

  OutputPiece Push(std::string_view text);
  // The end of the answer: what was held back. A call that was cut off keeps its complete parameters and is closed if its name is known.
  OutputPiece Finish();

  int32_t num_tool_calls() const { return num_calls_; }
  bool in_reasoning() const { return state_ == State::kReasoning; }

 private:
  enum class State : uint8_t {
    kReasoning,
    kContent,
    kAfterOpener,
    kFunctionName,
    kBetweenParameters,
    kParameterName,
    kValue,
    kAfterFunction,
    kJsonCall
  };
  enum class Input : uint8_t { kMore, kEnded };  // whether text may still follow

  OutputPiece Run(Input input);
  // Each consumes settled text from the front of held_; false: it needs more text.
  bool Step(Input input, OutputPiece& out);
  bool StepReasoning(Input input, OutputPiece& out);
  bool StepContent(Input input, OutputPiece& out);
  bool StepAfterOpener(Input input, OutputPiece& out);
  bool StepFunctionName(Input input, OutputPiece& out);
  bool StepBetweenParameters(Input input, OutputPiece& out);
  bool StepParameterName(Input input, OutputPiece& out);
  bool StepValue(Input input, OutputPiece& out);
  bool StepAfterFunction(Input input);
  bool StepJsonCall(Input input, OutputPiece& out);

  std::string_view CallMarker() const;  // what follows the opener of a call
  size_t FindJsonEnd();
  bool EmitJsonCall(std::string_view json, OutputPiece& out);
  void SkipSpace();
  void EmitContent(std::string_view text, OutputPiece& out);
  void EmitArguments(std::string_view text, OutputPiece& out);
  void EmitParameter(std::string_view raw, OutputPiece& out);
  void CloseCall(State next, OutputPiece& out);
  bool IsNewParameter(std::string_view tag) const;
  size_t FindValueEnd(Input input);

  OutputParserOptions options_;
  State state_ = State::kContent;
  std::string held_;            // text whose meaning is not settled
  size_t scan_from_ = 0;        // of held_, inside a value: everything before is known not to end it
  std::string opener_;          // what opened the call, in case it turns out to be none
  std::string space_;           // white space of the content, dropped when a call follows
  bool trims_content_ = false;  // directly after a call
  bool reasoning_started_ = false;
  bool is_after_thoughts_ = false;
  bool has_begun_ = false;  // the first text was seen, which may be an opener of reasoning
  int32_t json_depth_ = 0;  // of held_ before scan_from_, inside a JSON call
  bool in_string_ = false;  // likewise
  int32_t num_calls_ = 0;
  int32_t num_parameters_ = 0;               // of the open call
  const OrderedJson* schema_ = nullptr;      // of the open call: what references start from
  const OrderedJson* properties_ = nullptr;  // schemas of the open call's parameters
  std::string parameter_;                    // whose value is being read
};

}  // namespace avocet::server
