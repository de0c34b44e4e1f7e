#include "server/output_parser.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

#include "server/json_input.h"
#include "server/parameter_value.h"

namespace avocet::server {
namespace {

constexpr std::string_view kThinkOpen = "<think>";
constexpr std::string_view kThinkClose = "</think>";
constexpr std::string_view kCallOpen = "<tool_call>";
constexpr std::string_view kCallClose = "</tool_call>";
constexpr std::string_view kFunctionOpen = "<function=";
constexpr std::string_view kFunctionClose = "</function>";
constexpr std::string_view kParameterOpen = "<parameter=";
constexpr std::string_view kParameterClose = "</parameter>";
constexpr std::string_view kGap = "\n\n";
constexpr std::string_view kSpace = " \t\r\n";
constexpr size_t kNameBytesMax = 512;  // of a function or parameter; longer is no call

// text could become marker if more followed.
bool IsProperPrefix(std::string_view text, std::string_view marker) {
  return text.size() < marker.size() && marker.starts_with(text);
}

// Where the longest end of text begins that could become one of the markers.
size_t UnsettledFrom(std::string_view text, std::initializer_list<std::string_view> markers) {
  size_t longest = 0;
  for (std::string_view marker : markers) {
    for (size_t n = std::min(text.size(), marker.size() - 1); n > longest; --n) {
      if (marker.starts_with(text.substr(text.size() - n))) longest = n;
    }
  }
  return text.size() - longest;
}

std::string_view SkipSpaceAt(std::string_view text, size_t from) {
  const size_t at = text.find_first_not_of(kSpace, from);
  return at == std::string_view::npos ? std::string_view{} : text.substr(at);
}

}  // namespace

void OutputPiece::Append(OutputPiece&& later) {
  reasoning += later.reasoning;
  content += later.content;
  for (ToolCallPiece& call : later.tool_calls) {
    if (!tool_calls.empty() && tool_calls.back().index == call.index) {
      tool_calls.back().arguments += call.arguments;
    } else {
      tool_calls.push_back(std::move(call));
    }
  }
}

OutputParser::OutputParser(OutputParserOptions options) : options_(std::move(options)) {
  if (options_.reasoning != ReasoningFormat::kNone && options_.starts_in_reasoning) state_ = State::kReasoning;
}

OutputPiece OutputParser::Push(std::string_view text) {
  held_ += text;
  return Run(Input::kMore);
}

OutputPiece OutputParser::Finish() {
  OutputPiece out = Run(Input::kEnded);
  if (num_calls_ == 0 && !space_.empty()) out.content += std::exchange(space_, {});
  return out;
}

OutputPiece OutputParser::Run(Input input) {
  OutputPiece out;
  while (Step(input, out)) {
  }
  return out;
}

bool OutputParser::Step(Input input, OutputPiece& out) {
  switch (state_) {
    case State::kReasoning: return StepReasoning(input, out);
    case State::kContent: return StepContent(input, out);
    case State::kAfterOpener: return StepAfterOpener(input, out);
    case State::kFunctionName: return StepFunctionName(input, out);
    case State::kBetweenParameters: return StepBetweenParameters(input, out);
    case State::kParameterName: return StepParameterName(input, out);
    case State::kValue: return StepValue(input, out);
    case State::kAfterFunction: return StepAfterFunction(input);
    case State::kJsonCall: return StepJsonCall(input, out);
  }
  return false;
}

// Reasoning ends at its tag, or where a call begins although the tag is missing.
bool OutputParser::StepReasoning(Input input, OutputPiece& out) {
  if (!reasoning_started_) {
    if (input == Input::kMore && IsProperPrefix(held_, kThinkOpen)) return false;
    if (held_.starts_with(kThinkOpen)) held_.erase(0, kThinkOpen.size());  // the model repeated the opener of the prompt
    reasoning_started_ = true;
  }
  const size_t close = held_.find(kThinkClose);
  size_t call = options_.tools == ToolFormat::kNone ? std::string::npos : held_.find(kCallOpen);
  while (call != std::string::npos && call < close) {
    const std::string_view after = SkipSpaceAt(held_, call + kCallOpen.size());
    if (after.starts_with(CallMarker())) break;
    if (input == Input::kMore && IsProperPrefix(after, CallMarker())) {
      out.reasoning.append(held_, 0, call);
      held_.erase(0, call);
      return false;
    }
    call = held_.find(kCallOpen, call + 1);
  }
  const size_t end = std::min(close, call);
  if (end != std::string::npos) {
    out.reasoning.append(held_, 0, end);
    held_.erase(0, end + (end == close ? kThinkClose.size() : 0));
    is_after_thoughts_ = options_.drops_gap;
    state_ = State::kContent;
    return true;
  }
  const size_t settled = input == Input::kEnded ? held_.size() : UnsettledFrom(held_, {kThinkClose, kCallOpen});
  out.reasoning.append(held_, 0, settled);
  held_.erase(0, settled);
  return false;
}

bool OutputParser::StepContent(Input input, OutputPiece& out) {
  if (is_after_thoughts_) {
    if (input == Input::kMore && IsProperPrefix(held_, kGap)) return false;
    if (held_.starts_with(kGap)) held_.erase(0, kGap.size());
    is_after_thoughts_ = false;
  }
  if (options_.tools == ToolFormat::kNone && options_.reasoning == ReasoningFormat::kNone) {
    out.content += std::exchange(held_, {});
    return false;
  }
  if (!has_begun_ && options_.reasoning != ReasoningFormat::kNone) {  // the model opens the thoughts itself
    const std::string_view start = SkipSpaceAt(held_, 0);
    if (input == Input::kMore && IsProperPrefix(start, kThinkOpen)) return false;
    has_begun_ = true;
    if (start.starts_with(kThinkOpen)) {
      held_.erase(0, held_.size() - start.size());
      state_ = State::kReasoning;
      return true;
    }
  }
  const bool has_tools = options_.tools != ToolFormat::kNone;
  const size_t call = has_tools ? held_.find(kCallOpen) : std::string::npos;
  const size_t function = options_.tools == ToolFormat::kFunctionTags ? held_.find(kFunctionOpen) : std::string::npos;
  const size_t think = options_.reasoning == ReasoningFormat::kNone ? std::string::npos : held_.find(kThinkClose);
  const size_t marker = std::min({call, function, think});
  if (marker == std::string::npos) {
    const size_t settled = input == Input::kEnded ? held_.size() : UnsettledFrom(held_, {kCallOpen, kFunctionOpen, kThinkClose});
    EmitContent(std::string_view(held_).substr(0, settled), out);
    held_.erase(0, settled);
    return false;
  }
  EmitContent(std::string_view(held_).substr(0, marker), out);
  if (marker == think) {  // a second closing tag means nothing
    held_.erase(0, marker + kThinkClose.size());
    return true;
  }
  opener_ = marker == call ? kCallOpen : kFunctionOpen;
  held_.erase(0, marker + opener_.size());
  state_ = marker == call ? State::kAfterOpener : State::kFunctionName;
  return true;
}

bool OutputParser::StepAfterOpener(Input input, OutputPiece& out) {
  const std::string_view after = SkipSpaceAt(held_, 0);
  if (options_.tools == ToolFormat::kJsonTags && after.starts_with(CallMarker())) {
    opener_.append(held_, 0, held_.size() - after.size());
    held_.erase(0, held_.size() - after.size());
    scan_from_ = 0;
    json_depth_ = 0;
    in_string_ = false;
    state_ = State::kJsonCall;
    return true;
  }
  if (after.starts_with(CallMarker())) {
    const size_t consumed = held_.size() - after.size() + kFunctionOpen.size();
    opener_.append(held_, 0, consumed);
    held_.erase(0, consumed);
    state_ = State::kFunctionName;
    return true;
  }
  if (input == Input::kMore && IsProperPrefix(after, CallMarker())) return false;
  EmitContent(std::exchange(opener_, {}), out);
  state_ = State::kContent;
  return true;
}

bool OutputParser::StepFunctionName(Input input, OutputPiece& out) {
  const size_t end = held_.find_first_of(">\n<");
  const bool is_name = end != std::string::npos && held_[end] == '>' && end > 0 && end <= kNameBytesMax;
  if (is_name) {
    const std::string name = held_.substr(0, end);
    held_.erase(0, end + 1);
    opener_.clear();
    space_.clear();
    const auto schema = options_.schemas.find(name);
    properties_ = nullptr;
    schema_ = schema != options_.schemas.end() ? &schema->second : nullptr;
    if (schema != options_.schemas.end() && schema->second.is_object()) {
      const auto properties = schema->second.find("properties");
      if (properties != schema->second.end() && properties->is_object()) properties_ = &*properties;
    }
    out.tool_calls.push_back({num_calls_, name, {}});
    ++num_calls_;
    num_parameters_ = 0;
    state_ = State::kBetweenParameters;
    return true;
  }
  if (end == std::string::npos && input == Input::kMore && held_.size() <= kNameBytesMax) return false;
  EmitContent(std::exchange(opener_, {}), out);
  state_ = State::kContent;
  return true;
}

// Missing closers are tolerated: the next opener closes what is open.
bool OutputParser::StepBetweenParameters(Input input, OutputPiece& out) {
  SkipSpace();
  if (held_.starts_with(kParameterOpen)) {
    held_.erase(0, kParameterOpen.size());
    state_ = State::kParameterName;
    return true;
  }
  if (held_.starts_with(kFunctionClose)) {
    held_.erase(0, kFunctionClose.size());
    CloseCall(State::kAfterFunction, out);
    return true;
  }
  if (held_.starts_with(kCallClose)) {
    CloseCall(State::kAfterFunction, out);
    return true;
  }
  if (held_.starts_with(kCallOpen) || held_.starts_with(kFunctionOpen)) {
    CloseCall(State::kContent, out);
    return true;
  }
  if (input == Input::kMore) {
    for (std::string_view marker : {kParameterOpen, kFunctionClose, kCallClose, kCallOpen, kFunctionOpen}) {
      if (IsProperPrefix(held_, marker)) return false;
    }
  }
  if (held_.empty()) {  // the answer ends inside the call
    CloseCall(State::kContent, out);
    return false;
  }
  held_.erase(0, 1);  // stray text inside a call means nothing
  return true;
}

bool OutputParser::StepParameterName(Input input, OutputPiece& out) {
  const size_t end = held_.find('>');
  if (end == std::string::npos) {
    if (input == Input::kMore && held_.size() <= kNameBytesMax) return false;
    held_.clear();
    CloseCall(State::kContent, out);
    return false;
  }
  parameter_ = held_.substr(0, end);
  held_.erase(0, end + 1);
  scan_from_ = 0;
  state_ = State::kValue;
  return true;
}

bool OutputParser::StepValue(Input input, OutputPiece& out) {
  const size_t end = FindValueEnd(input);
  if (end == std::string::npos) {
    if (input == Input::kMore) return false;
    held_.clear();  // a value that was cut off is no value
    CloseCall(State::kContent, out);
    return false;
  }
  EmitParameter(std::string_view(held_).substr(0, end), out);
  held_.erase(0, end + (std::string_view(held_).substr(end).starts_with(kParameterClose) ? kParameterClose.size() : 0));
  state_ = State::kBetweenParameters;
  return true;
}

// A closing tag inside the value is text unless what follows it continues the call; so the value may quote the markup.
size_t OutputParser::FindValueEnd(Input input) {
  for (size_t at = held_.find('<', scan_from_); at != std::string::npos; at = held_.find('<', at + 1)) {
    const std::string_view rest = std::string_view(held_).substr(at);
    const bool at_line_start = at == 0 || held_[at - 1] == '\n';
    if (rest.starts_with(kParameterClose)) {
      const std::string_view after = SkipSpaceAt(held_, at + kParameterClose.size());
      for (std::string_view next : {kParameterOpen, kFunctionClose, kCallClose, kCallOpen}) {
        if (after.starts_with(next)) return at;
      }
      if (after.empty() && input == Input::kEnded) return at;
      const bool unsettled =
          input == Input::kMore && std::ranges::any_of(std::array{kParameterOpen, kFunctionClose, kCallClose, kCallOpen},
                                                       [&](std::string_view next) { return IsProperPrefix(after, next); });
      if (unsettled) {
        scan_from_ = at;
        return std::string::npos;
      }
    } else if (at_line_start && rest.starts_with(kParameterOpen) && IsNewParameter(rest)) {
      return at;
    } else if (at_line_start && rest.starts_with(kFunctionClose) &&
               SkipSpaceAt(held_, at + kFunctionClose.size()).starts_with(kCallClose)) {
      return at;
    }
    // A tag that has not arrived whole yet, or whose continuation has not.
    const bool may_grow =
        IsProperPrefix(rest, kParameterClose) ||
        (at_line_start &&
         (IsProperPrefix(rest, kParameterOpen) || IsProperPrefix(rest, kFunctionClose) ||
          (rest.starts_with(kParameterOpen) && rest.find('>') == std::string_view::npos && rest.size() <= kNameBytesMax) ||
          (rest.starts_with(kFunctionClose) && IsProperPrefix(SkipSpaceAt(held_, at + kFunctionClose.size()), kCallClose))));
    if (input == Input::kMore && may_grow) {
      scan_from_ = at;
      return std::string::npos;
    }
  }
  scan_from_ = held_.size();
  return std::string::npos;
}

// `tag` opens a parameter that the schema knows: the closer before it was forgotten.
bool OutputParser::IsNewParameter(std::string_view tag) const {
  const size_t end = tag.find('>');
  if (end == std::string_view::npos || properties_ == nullptr) return false;
  const std::string name(tag.substr(kParameterOpen.size(), end - kParameterOpen.size()));
  return name != parameter_ && properties_->contains(name);
}

bool OutputParser::StepAfterFunction(Input input) {
  SkipSpace();
  if (held_.starts_with(kCallClose)) {
    held_.erase(0, kCallClose.size());
  } else if (input == Input::kMore && IsProperPrefix(held_, kCallClose)) {
    return false;
  }
  state_ = State::kContent;
  return true;
}

std::string_view OutputParser::CallMarker() const {
  return options_.tools == ToolFormat::kJsonTags ? std::string_view("{") : kFunctionOpen;
}

// One past the brace that closes the object, or npos; what was scanned is not scanned again.
size_t OutputParser::FindJsonEnd() {
  for (; scan_from_ < held_.size(); ++scan_from_) {
    const char c = held_[scan_from_];
    if (in_string_) {
      if (c == '\\') {
        if (scan_from_ + 1 == held_.size()) return std::string::npos;
        ++scan_from_;
      } else if (c == '"') {
        in_string_ = false;
      }
    } else if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      ++json_depth_;
    } else if ((c == '}' || c == ']') && --json_depth_ == 0) {
      return ++scan_from_;
    }
  }
  return std::string::npos;
}

bool OutputParser::EmitJsonCall(std::string_view json, OutputPiece& out) {
  const Result<OrderedJson> call = ParseJson(json, "the call");
  if (!call.has_value() || !call->is_object()) return false;
  const auto name = call->find("name");
  if (name == call->end() || !name->is_string()) return false;
  auto arguments = call->find("arguments");
  if (arguments == call->end()) arguments = call->find("parameters");
  const bool has_arguments = arguments != call->end() && arguments->is_object();
  out.tool_calls.push_back({num_calls_, name->get<std::string>(), has_arguments ? DumpJson(*arguments) : "{}"});
  ++num_calls_;
  return true;
}

bool OutputParser::StepJsonCall(Input input, OutputPiece& out) {
  const size_t end = FindJsonEnd();
  if (end == std::string::npos && input == Input::kMore) return false;
  const std::string json = held_.substr(0, end);
  held_.erase(0, json.size());
  if (end != std::string::npos && EmitJsonCall(json, out)) {
    opener_.clear();
    space_.clear();
    trims_content_ = true;
    state_ = State::kAfterFunction;
    return true;
  }
  EmitContent(std::exchange(opener_, {}) + json, out);
  state_ = State::kContent;
  return true;
}

void OutputParser::SkipSpace() {
  held_.erase(0, std::min(held_.find_first_not_of(kSpace), held_.size()));
}

// White space directly around calls belongs to nobody.
void OutputParser::EmitContent(std::string_view text, OutputPiece& out) {
  if (options_.tools == ToolFormat::kNone) {
    out.content += text;
    return;
  }
  if (trims_content_) {
    text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
    if (text.empty()) return;
    trims_content_ = false;
  }
  const size_t last = text.find_last_not_of(kSpace);
  if (last == std::string_view::npos) {
    space_ += text;
    return;
  }
  out.content += std::exchange(space_, {});
  out.content += text.substr(0, last + 1);
  space_ = text.substr(last + 1);
}

void OutputParser::EmitArguments(std::string_view text, OutputPiece& out) {
  const int32_t index = num_calls_ - 1;
  if (out.tool_calls.empty() || out.tool_calls.back().index != index) out.tool_calls.push_back({index, {}, {}});
  out.tool_calls.back().arguments += text;
}

void OutputParser::EmitParameter(std::string_view raw, OutputPiece& out) {
  // One newline after the opening tag and one before the closing tag are layout, all others are the value's.
  if (raw.starts_with("\r\n")) {
    raw.remove_prefix(2);
  } else if (raw.starts_with('\n')) {
    raw.remove_prefix(1);
  }
  if (raw.ends_with('\n')) raw.remove_suffix(raw.ends_with("\r\n") ? 2 : 1);
  OrderedJson schema;
  if (properties_ != nullptr && properties_->contains(parameter_)) schema = (*properties_)[parameter_];
  const OrderedJson value = ConvertParameter(raw, schema, schema_ == nullptr ? OrderedJson() : *schema_);
  const auto replace = OrderedJson::error_handler_t::replace;
  EmitArguments((num_parameters_ == 0 ? "{" : ", ") + OrderedJson(parameter_).dump(-1, ' ', false, replace) + ": " +
                    value.dump(-1, ' ', false, replace),
                out);
  ++num_parameters_;
}

void OutputParser::CloseCall(State next, OutputPiece& out) {
  EmitArguments(num_parameters_ == 0 ? "{}" : "}", out);
  trims_content_ = true;
  state_ = next;
}

}  // namespace avocet::server
