// Every bound of the system with its reason. Options may lower or raise some of them at start; nothing grows past its bound.
#pragma once

#include <cstddef>
#include <cstdint>

namespace avocet::limits {

// Files. A checkpoint is hostile until checked.
inline constexpr size_t kConfigBytesMax = size_t{4} << 20;               // config.json; published ones are below 10 KB
inline constexpr size_t kSafetensorsHeaderBytesMax = size_t{100} << 20;  // the format's own limit
inline constexpr size_t kTokenizerBytesMax = size_t{256} << 20;          // tokenizer.json; published ones are about 13 MB
inline constexpr size_t kTemplateBytesMax = size_t{1} << 20;             // chat_template.jinja; published ones are below 16 KB
inline constexpr int32_t kTensorRankMax = 8;                             // dimensions of a tensor; the family uses up to 5

// Template rendering: a template is code that a stranger wrote.
inline constexpr int64_t kTemplateStepsMax = 5'000'000;              // evaluated nodes; 1,000 messages take about 100,000
inline constexpr int32_t kTemplateDepthMax = 200;                    // nested expressions, blocks and macro calls
inline constexpr size_t kTemplateOutputBytesMax = size_t{64} << 20;  // rendered text

// Requests.
inline constexpr int32_t kJsonDepthMax = 128;              // nesting of a request body
inline constexpr size_t kBodyBytesMax = size_t{64} << 20;  // HTTP body; pictures come as data URLs
inline constexpr int32_t kStopStringsMax = 64;
inline constexpr size_t kStopStringBytesMax = 4096;
inline constexpr int32_t kCompletionPromptsMax = 1024;  // prompts in one completions request
inline constexpr int32_t kChoicesMax = 128;             // n
inline constexpr int32_t kMailboxMax = 65536;           // submissions waiting for the engine thread

// Model shape: what the code was written for. Larger configs are refused by name.
inline constexpr int32_t kExpertsMax = 4096;
inline constexpr int32_t kTopKMax = 64;  // experts per token
inline constexpr int32_t kHeadDimMax = 512;
inline constexpr int32_t kWorkersMax = 512;

}  // namespace avocet::limits
