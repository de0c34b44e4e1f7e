// Cuts normalized text into the pieces that byte-pair merging works on, by the split pattern of tokenizer.json.
// The two patterns of the family have a hand-written matcher (linear); any other one runs in PCRE2 under a step limit.
// Immutable after Create; any thread may use it at once.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/function_ref.h"
#include "tokenizer/char_class.h"

namespace avocet::tokenizer {

// As published: Qwen3.5 treats combining marks like letters, Qwen2 does not.
inline constexpr std::string_view kQwen35Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

using PieceSink = FunctionRef<void(std::string_view piece)>;

class PreTokenizer {
 public:
  // The hand-written matcher where it knows the pattern, else PCRE2.
  static Result<PreTokenizer> Create(const std::string& pattern);
  // Always PCRE2: the reference of the tests.
  static Result<PreTokenizer> CreateRegex(const std::string& pattern);
  PreTokenizer(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // text is valid UTF-8. The pieces joined are the text; what the pattern does not match is a piece of its own.
  // Where PCRE2 gives up (step limit), the rest of the text is one piece, and the log says so.
  void Split(std::string_view text, PieceSink sink) const;

  bool is_hand_written() const { return classes_ != nullptr; }

 private:
  struct Regex;
  PreTokenizer();
  void SplitRegex(std::string_view text, PieceSink sink) const;

  std::unique_ptr<const CharClassTable> classes_;  // of the hand-written matcher
  std::unique_ptr<const Regex> regex_;             // else this
};

}  // namespace avocet::tokenizer
