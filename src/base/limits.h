// Every bound of the system with its reason. Options may lower or raise some of them at start; nothing grows past its bound.
#pragma once

#include <cstddef>
#include <cstdint>

namespace avocet::limits {

// Files. A checkpoint is hostile until checked.
inline constexpr size_t kConfigBytesMax = size_t{4} << 20;               // config.json; published ones are below 10 KB
inline constexpr size_t kSafetensorsHeaderBytesMax = size_t{100} << 20;  // the format's own limit
inline constexpr size_t kQuantDescriptionBytesMax = size_t{256} << 20;   // the 397B checkpoint's has 276,000 names, about 30 MB
inline constexpr size_t kTokenizerBytesMax = size_t{256} << 20;          // tokenizer.json; published ones are about 13 MB
inline constexpr size_t kTemplateBytesMax = size_t{1} << 20;             // chat_template.jinja; published ones are below 16 KB
inline constexpr int32_t kTensorRankMax = 8;                             // dimensions of a tensor; the family uses up to 5
inline constexpr size_t kTensorNameBytesMax = 512;                       // the longest published name has 82
inline constexpr size_t kTensorsMax = 1'000'000;                         // of a checkpoint; 397B in int8 with its scales has 276,000
inline constexpr size_t kShardsMax = 512;  // files of a checkpoint, each open while it loads; published ones have about 100

// Tokenizer files and texts.
inline constexpr int32_t kTokenIdsMax = 1 << 22;                   // ids are below; the family has 248,077 tokens
inline constexpr size_t kTokenBytesMax = 4096;                     // one token; the family's longest has 128
inline constexpr int32_t kMergesMax = 1 << 22;                     // the family has 247,587
inline constexpr int32_t kAddedTokensMax = 65536;                  // the family has 33
inline constexpr size_t kAddedTokenBytesMax = 1024;                // one added token; bounds the matching per byte of text
inline constexpr size_t kSplitPatternBytesMax = size_t{16} << 10;  // pre-tokenizer pattern; the family's has 125
inline constexpr int32_t kTokenizerValuesMax = 2'000'000;          // JSON values outside vocabulary and merges
inline constexpr size_t kEncodeBytesMax = size_t{512} << 20;       // one text to encode; repairing may triple it, ICU counts in int32
inline constexpr size_t kHeldBytesMax = 256;                       // bytes a stream holds back while they end in a broken character
inline constexpr uint32_t kSplitMatchStepsMax = 10'000'000;        // backtracking steps of one match of a foreign split pattern

// Template rendering: a template is code that a stranger wrote.
inline constexpr int64_t kTemplateStepsMax = 5'000'000;              // evaluated nodes; 1,000 messages take about 100,000
inline constexpr int32_t kTemplateDepthMax = 200;                    // nesting of the source, and of the values it makes
inline constexpr int32_t kTemplateTreeHeightMax = 500;               // operators in one another: a + b + c ... is a high tree
inline constexpr int32_t kTemplateFramesMax = 1000;                  // evaluations in one another, about 0.6 KB of stack each
inline constexpr int64_t kTemplateRangeMax = 100'000;                // numbers of one range(), as in the reference's sandbox
inline constexpr size_t kTemplateStepBytes = 64;                     // bytes of text made that count as one step
inline constexpr size_t kTemplateOutputBytesMax = size_t{64} << 20;  // rendered text

// Requests.
inline constexpr int32_t kJsonDepthMax = 128;              // nesting of a request body
inline constexpr size_t kBodyBytesMax = size_t{64} << 20;  // HTTP body; pictures come as data URLs
inline constexpr int32_t kStopStringsMax = 64;
inline constexpr size_t kStopStringBytesMax = 4096;
inline constexpr size_t kStoredResponsesMax = 4096;  // of /v1/responses
inline constexpr size_t kStoredResponseBytesMax = size_t{64} << 20;
inline constexpr int32_t kCompletionPromptsMax = 1024;  // prompts in one completions request
inline constexpr int32_t kChoicesMax = 128;             // n
inline constexpr size_t kJsonValuesMax = 4'000'000;     // values of one body, about 64 bytes each in memory
inline constexpr size_t kRequestSequencesMax = 4096;    // prompts times n of one request
inline constexpr size_t kBadWordsMax = 1024;
inline constexpr size_t kRequestIdBytesMax = 128;                // a client's request id; a longer one is replaced
inline constexpr size_t kTargetBytesMax = size_t{8} << 10;       // path and query of a URL
inline constexpr size_t kBodiesBytesMax = size_t{1} << 30;       // bodies being received, over all connections
inline constexpr size_t kInboxEventsMax = 8192;                  // engine events waiting for one io thread; dozens of steps
inline constexpr size_t kHelperJobsMax = 1024;                   // long requests waiting to be parsed and tokenised
inline constexpr size_t kHelperBodyBytesMin = size_t{16} << 10;  // bodies from here on are parsed by a helper thread
inline constexpr int32_t kMailboxMax = 65536;                    // submissions waiting for the engine thread

// Model shape: what the code was written for. Larger configs are refused by name.
inline constexpr int32_t kExpertsMax = 4096;
inline constexpr int32_t kTopKMax = 64;  // experts per token
inline constexpr int32_t kHeadDimMax = 512;
inline constexpr int32_t kLayersMax = 512;    // the largest announced member has 92
inline constexpr int32_t kHiddenMax = 65536;  // also widths of MLPs and experts, times 16 (kIntermediateMax)
inline constexpr int32_t kIntermediateMax = 1 << 20;
inline constexpr int32_t kHeadsMax = 512;      // query, K/V, key and value heads
inline constexpr int32_t kConvKernelMax = 16;  // taps of the causal convolution
inline constexpr int32_t kVocabRowsMax = 1 << 22;
inline constexpr int32_t kPositionsMax = 1 << 24;  // of one sequence
inline constexpr int32_t kDraftsMax = 15;          // draft tokens per sequence and step
inline constexpr int32_t kDraftLayersMax = 16;     // multi-token-prediction layers
inline constexpr size_t kEosIdsMax = 64;           // stop ids in config.json or generation_config.json
inline constexpr int32_t kWorkersMax = 512;

}  // namespace avocet::limits
