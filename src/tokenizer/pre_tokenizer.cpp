#include "tokenizer/pre_tokenizer.h"

#include <array>
#include <cstdint>
#include <utility>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/printable.h"
#include "tokenizer/family_matcher.h"
#include "tokenizer/utf8.h"

namespace avocet::tokenizer {

namespace {

constexpr size_t kJitStackBytes = size_t{32} << 10;
constexpr size_t kJitStackBytesMax = size_t{8} << 20;
constexpr uint32_t kHeapKibMax = 8192;  // the same where there is no JIT

template <auto kFree>
struct Freer {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Code = std::unique_ptr<pcre2_code, Freer<pcre2_code_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Freer<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Freer<pcre2_match_context_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Freer<pcre2_jit_stack_free>>;

std::string PcreMessage(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

// \s and \S as the reference library has them: Unicode White_Space. PCRE2's own \s also holds U+180E.
std::string WithUnicodeSpaces(std::string_view pattern) {
  std::string replaced;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '\\' || i + 1 == pattern.size()) {
      replaced += pattern[i];
      continue;
    }
    const char escaped = pattern[++i];
    if (escaped == 's') {
      replaced += "\\p{White_Space}";
    } else if (escaped == 'S') {
      replaced += "\\P{White_Space}";
    } else {
      replaced += '\\';
      replaced += escaped;
    }
  }
  return replaced;
}

}  // namespace

struct PreTokenizer::Regex {
  Code code;
};

PreTokenizer::PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

Result<PreTokenizer> PreTokenizer::Create(const std::string& pattern) {
  if (pattern != kQwen35Pattern && pattern != kQwen2Pattern) return CreateRegex(pattern);
  PreTokenizer made;
  made.classes_ = std::make_unique<CharClassTable>(pattern == kQwen35Pattern ? Marks::kAreLetters : Marks::kAreSymbols);
  return made;
}

Result<PreTokenizer> PreTokenizer::CreateRegex(const std::string& pattern) {
  if (pattern.size() > limits::kSplitPatternBytesMax) {
    return Fail(Errc::kCorrupt, "split pattern has {} bytes, at most {} are read", pattern.size(), limits::kSplitPatternBytesMax);
  }
  const std::string translated = WithUnicodeSpaces(pattern);
  int error = 0;
  PCRE2_SIZE error_at = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &error_at, nullptr));
  if (code == nullptr) {
    return Fail(Errc::kCorrupt, "split pattern does not compile: {} near byte {} of {}", PcreMessage(error), error_at,
                Printable(translated));
  }
  // Without JIT (refused by the kernel, say) matching is slower, not different.
  if (const int rc = pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE); rc != 0) {
    LogWarning("split pattern runs interpreted: {}", PcreMessage(rc));
  }
  PreTokenizer made;
  made.regex_ = std::make_unique<const Regex>(std::move(code));
  return made;
}

void PreTokenizer::Split(std::string_view text, PieceSink sink) const {
  if (regex_ != nullptr) {
    SplitRegex(text, sink);
    return;
  }
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    const char* const match_end = MatchEnd(at, end, *classes_);
    sink({at, match_end});
    at = match_end;
  }
}

void PreTokenizer::SplitRegex(std::string_view text, PieceSink sink) const {
  if (text.empty()) return;
  const MatchData match(pcre2_match_data_create_from_pattern(regex_->code.get(), nullptr));
  const MatchContext context(pcre2_match_context_create(nullptr));
  const JitStack stack(pcre2_jit_stack_create(kJitStackBytes, kJitStackBytesMax, nullptr));
  CHECK(match != nullptr && context != nullptr && stack != nullptr, "no memory for the split pattern");
  pcre2_set_match_limit(context.get(), limits::kSplitMatchStepsMax);
  pcre2_set_heap_limit(context.get(), kHeapKibMax);
  pcre2_jit_stack_assign(context.get(), nullptr, stack.get());

  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  size_t emitted = 0;  // text[0, emitted) has been given to the sink
  size_t search_at = 0;
  while (search_at < text.size()) {
    const int rc = pcre2_match(regex_->code.get(), subject, text.size(), search_at, PCRE2_NO_UTF_CHECK, match.get(), context.get());
    if (rc < 0) {
      if (rc != PCRE2_ERROR_NOMATCH) {
        LogWarning("split pattern gave up at byte {} of {}, the rest stays whole: {}", search_at, text.size(), PcreMessage(rc));
      }
      break;
    }
    const PCRE2_SIZE* const offsets = pcre2_get_ovector_pointer(match.get());
    const size_t begin = offsets[0];
    const size_t end = offsets[1];
    if (begin > emitted) sink(text.substr(emitted, begin - emitted));
    if (end > begin) sink(text.substr(begin, end - begin));
    emitted = search_at = end;
    if (end == text.size()) break;
    // An empty match cuts, too; the search goes on one character later.
    if (end == begin) search_at += static_cast<size_t>(FirstUnit(text.substr(end)).num_bytes);
  }
  if (emitted < text.size()) sink(text.substr(emitted));
}

}  // namespace avocet::tokenizer
