#include "tokenizer/jinja/split.h"

#include <algorithm>

#include "tokenizer/jinja/text.h"

namespace avocet::tokenizer::jinja {
namespace {

bool IsReached(size_t num_pieces, int64_t splits_max) {
  return splits_max >= 0 && static_cast<int64_t>(num_pieces) >= splits_max;
}

}  // namespace

std::vector<std::string_view> Split(std::string_view text, std::string_view separator, int64_t splits_max) {
  std::vector<std::string_view> pieces;
  size_t begin = 0;
  while (!IsReached(pieces.size(), splits_max)) {
    const size_t end = FindText(text, separator, begin);
    if (end == std::string_view::npos) break;
    pieces.push_back(text.substr(begin, end - begin));
    begin = end + separator.size();
  }
  pieces.push_back(text.substr(begin));
  return pieces;
}

std::vector<std::string_view> SplitFromEnd(std::string_view text, std::string_view separator, int64_t splits_max) {
  std::vector<std::string_view> pieces;
  while (!IsReached(pieces.size(), splits_max)) {
    const size_t at = FindTextFromEnd(text, separator);
    if (at == std::string_view::npos) break;
    pieces.push_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  pieces.push_back(text);
  std::ranges::reverse(pieces);
  return pieces;
}

std::vector<std::string_view> SplitAtSpace(std::string_view text, int64_t splits_max) {
  std::vector<std::string_view> pieces;
  text = StripLeft(text, std::nullopt);
  while (!text.empty()) {
    if (IsReached(pieces.size(), splits_max)) {
      pieces.push_back(text);
      break;
    }
    size_t end = 0;
    while (end < text.size()) {
      size_t next = end;
      if (IsSpace(NextCodePoint(text, next))) break;
      end = next;
    }
    pieces.push_back(text.substr(0, end));
    text = StripLeft(text.substr(end), std::nullopt);
  }
  return pieces;
}

std::vector<std::string_view> SplitAtSpaceFromEnd(std::string_view text, int64_t splits_max) {
  std::vector<std::string_view> pieces;
  text = StripRight(text, std::nullopt);
  while (!text.empty()) {
    if (IsReached(pieces.size(), splits_max)) {
      pieces.push_back(text);
      break;
    }
    size_t begin = text.size();
    while (begin > 0) {
      const CodePoint before = LastCodePoint(text.substr(0, begin));
      if (IsSpace(before.value)) break;
      begin -= static_cast<size_t>(before.num_bytes);
    }
    pieces.push_back(text.substr(begin));
    text = StripRight(text.substr(0, begin), std::nullopt);
  }
  std::ranges::reverse(pieces);
  return pieces;
}

}  // namespace avocet::tokenizer::jinja
