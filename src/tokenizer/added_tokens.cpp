#include "tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include <unicode/uchar.h>

#include "tokenizer/utf8.h"

namespace avocet::tokenizer {

namespace {

bool IsSpace(uint32_t code_point) {
  return u_isUWhiteSpace(static_cast<UChar32>(code_point)) != 0;
}

// \w of the reference's regex library: Alphabetic, marks, decimal digits, connector punctuation, join controls.
bool IsWord(uint32_t code_point) {
  const auto c = static_cast<UChar32>(code_point);
  const uint32_t categories = U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK;
  return u_isUAlphabetic(c) != 0 || (U_GET_GC_MASK(c) & categories) != 0 || u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL) != 0;
}

size_t TrailingSpaceBytes(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0) {
    const CodePoint last = LastCodePoint(text.substr(0, begin));
    if (!IsSpace(last.value)) break;
    begin -= static_cast<size_t>(last.num_bytes);
  }
  return text.size() - begin;
}

size_t LeadingSpaceBytes(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const CodePoint next = DecodeValid(text.data() + at);
    if (!IsSpace(next.value)) break;
    at += static_cast<size_t>(next.num_bytes);
  }
  return at;
}

bool StandsAlone(std::string_view before, std::string_view after) {
  const bool word_before = !before.empty() && IsWord(LastCodePoint(before).value);
  const bool word_after = !after.empty() && IsWord(DecodeValid(after.data()).value);
  return !word_before && !word_after;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::ranges::sort(tokens_, {}, &AddedToken::content);
  for (uint32_t i = 0; i < tokens_.size(); ++i) {
    Range& range = by_first_byte_[static_cast<unsigned char>(tokens_[i].content.front())];
    if (range.end == 0) range.begin = i;
    range.end = i + 1;
  }
  const bool begin_alike = !tokens_.empty() && tokens_.front().content.front() == tokens_.back().content.front();
  if (begin_alike) only_first_byte_ = tokens_.front().content.front();
}

const AddedToken* AddedTokenMatcher::LongestAt(std::string_view text) const {
  Range range = by_first_byte_[static_cast<unsigned char>(text.front())];
  const AddedToken* longest = nullptr;
  // tokens_[range] agree with text in their first `depth` bytes; the one that ends there, if any, comes first.
  for (size_t depth = 1; range.begin < range.end; ++depth) {
    if (tokens_[range.begin].content.size() == depth) {
      longest = &tokens_[range.begin];
      ++range.begin;
    }
    if (depth == text.size()) break;
    const auto byte_at_depth = [depth](const AddedToken& token) { return static_cast<unsigned char>(token.content[depth]); };
    const auto same = std::ranges::equal_range(tokens_.begin() + range.begin, tokens_.begin() + range.end,
                                               static_cast<unsigned char>(text[depth]), {}, byte_at_depth);
    range = {static_cast<uint32_t>(same.begin() - tokens_.begin()), static_cast<uint32_t>(same.end() - tokens_.begin())};
  }
  return longest;
}

size_t AddedTokenMatcher::NextCandidate(std::string_view text, size_t at) const {
  if (only_first_byte_) return std::min(text.find(*only_first_byte_, at), text.size());
  while (at < text.size() && by_first_byte_[static_cast<unsigned char>(text[at])].end == 0) ++at;
  return at;
}

std::optional<AddedTokenMatcher::Match> AddedTokenMatcher::Find(std::string_view text, size_t from) const {
  if (tokens_.empty()) return std::nullopt;
  for (size_t at = NextCandidate(text, from); at < text.size(); at = NextCandidate(text, at)) {
    const AddedToken* token = LongestAt(text.substr(at));
    if (token == nullptr) {
      ++at;
      continue;
    }
    const size_t end = at + token->content.size();
    if (token->is_single_word && !StandsAlone(text.substr(0, at), text.substr(end))) {
      at = end;
      continue;
    }
    Match match{at, end, token->id};
    if (token->strips_left) match.begin -= TrailingSpaceBytes(text.substr(from, at - from));
    if (token->strips_right) match.end += LeadingSpaceBytes(text.substr(end));
    return match;
  }
  return std::nullopt;
}

std::optional<int32_t> AddedTokenMatcher::FindContent(std::string_view content) const {
  const auto found = std::ranges::lower_bound(tokens_, content, {}, &AddedToken::content);
  if (found == tokens_.end() || found->content != content) return std::nullopt;
  return found->id;
}

}  // namespace avocet::tokenizer
