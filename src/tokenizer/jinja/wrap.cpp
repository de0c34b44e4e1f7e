#include "tokenizer/jinja/wrap.h"

#include <algorithm>
#include <utility>

#include "tokenizer/jinja/text.h"

namespace avocet::tokenizer::jinja {
namespace {

using Characters = std::vector<uint32_t>;

Characters Decode(std::string_view text) {
  Characters characters;
  for (size_t at = 0; at < text.size();) characters.push_back(NextCodePoint(text, at));
  return characters;
}

// textwrap's notions: its white space is ASCII, its letters are \w without digits.
bool IsBlank(uint32_t c) {
  return c == ' ' || (c >= 0x09 && c <= 0x0D);
}
bool IsLetter(uint32_t c) {
  return IsWordCharacter(c) && !IsDecimal(c);
}
bool IsWordOrMark(uint32_t c) {
  return IsWordCharacter(c) || c == '!' || c == '"' || c == '\'' || c == '&' || c == '.' || c == ',' || c == '?';
}

using Range = std::pair<size_t, size_t>;  // of characters: begin and end

// Cuts text where a line may end: around white space, around dashes between words, behind the hyphens of words.
class ChunkReader {
 public:
  ChunkReader(const Characters& text, const WrapStyle& style) : text_(text), splits_hyphens_(style.breaks_on_hyphens) {}

  std::vector<Range> Run() const {
    std::vector<Range> chunks;
    for (size_t at = 0; at < text_.size(); at = chunks.back().second) chunks.emplace_back(at, ChunkEnd(at));
    return chunks;
  }

 private:
  template <typename Predicate>
  bool Has(size_t at, Predicate predicate) const {
    return at < text_.size() && predicate(text_[at]);
  }
  bool IsDash(size_t at) const { return at < text_.size() && text_[at] == '-'; }

  // The end of two or more hyphens that stand between words, or `at`.
  size_t LongDashEnd(size_t at) const {
    size_t end = at;
    while (IsDash(end)) ++end;
    return end - at >= 2 && Has(end, IsWordCharacter) ? end : at;
  }

  // A hyphen at `at` after two letters (or a letter, a hyphen and a letter) and before two.
  bool IsWordHyphen(size_t at) const {
    if (!IsDash(at)) return false;
    const bool follows_two = at >= 2 && IsLetter(text_[at - 1]) && IsLetter(text_[at - 2]);
    const bool follows_short = at >= 3 && IsWordOrMark(text_[at - 1]) && text_[at - 2] == '-' && IsLetter(text_[at - 3]);
    if (!follows_two && !follows_short) return false;
    if (!Has(at + 1, IsLetter)) return false;
    return Has(at + 2, IsLetter) || (IsDash(at + 2) && Has(at + 3, IsLetter));
  }

  size_t ChunkEnd(size_t at) const {
    size_t end = at;
    while (Has(end, IsBlank)) ++end;
    if (end > at) return end;
    if (splits_hyphens_ && at > 0 && IsWordOrMark(text_[at - 1]) && LongDashEnd(at) > at) return LongDashEnd(at);
    for (end = at + 1; end < text_.size() && !IsBlank(text_[end]); ++end) {
      if (!splits_hyphens_) continue;
      if (IsWordHyphen(end)) return end + 1;
      if (IsWordOrMark(text_[end - 1]) && LongDashEnd(end) > end) return end;
    }
    return end;
  }

  const Characters& text_;
  bool splits_hyphens_;
};

class Wrapper {
 public:
  Wrapper(std::string_view text, const WrapStyle& style) : text_(Decode(text)), style_(style), chunks_(ChunkReader(text_, style).Run()) {}

  std::vector<std::string> Run() {
    std::vector<std::string> lines;
    while (next_ < chunks_.size()) {
      if (!lines.empty() && IsAllSpace(chunks_[next_])) ++next_;
      const std::vector<Range> line = TakeLine();
      if (!line.empty()) lines.push_back(Encode(line));
    }
    return lines;
  }

 private:
  static size_t Size(const Range& range) { return range.second - range.first; }
  bool IsAllSpace(const Range& range) const {
    return std::all_of(text_.begin() + static_cast<ptrdiff_t>(range.first), text_.begin() + static_cast<ptrdiff_t>(range.second), IsSpace);
  }

  std::vector<Range> TakeLine() {
    const auto width = static_cast<size_t>(style_.width);
    std::vector<Range> line;
    size_t length = 0;
    while (next_ < chunks_.size() && length + Size(chunks_[next_]) <= width) {
      length += Size(chunks_[next_]);
      line.push_back(chunks_[next_++]);
    }
    if (next_ < chunks_.size() && Size(chunks_[next_]) > width) {
      Range& chunk = chunks_[next_];
      if (style_.breaks_long_words) {
        const size_t cut = CutOf(chunk, width - length);
        line.emplace_back(chunk.first, cut);
        chunk.first = cut;
      } else if (line.empty()) {
        line.push_back(chunk);
        ++next_;
      }
    }
    if (!line.empty() && IsAllSpace(line.back())) line.pop_back();
    return line;
  }

  // Where a chunk that is longer than a line is cut: to fill the line, or behind its last hyphen that fits.
  size_t CutOf(const Range& chunk, size_t room) const {
    const size_t end = chunk.first + room;
    if (!style_.breaks_on_hyphens || Size(chunk) <= room) return end;
    for (size_t at = end; at-- > chunk.first;) {
      if (text_[at] != '-') continue;
      const auto begin = text_.begin() + static_cast<ptrdiff_t>(chunk.first);
      const bool has_other = std::any_of(begin, text_.begin() + static_cast<ptrdiff_t>(at), [](uint32_t c) { return c != '-'; });
      return has_other ? at + 1 : end;
    }
    return end;
  }

  std::string Encode(const std::vector<Range>& line) const {
    std::string text;
    for (const auto& [begin, end] : line) {
      for (size_t at = begin; at < end; ++at) AppendUtf8(text_[at], text);
    }
    return text;
  }

  const Characters text_;
  const WrapStyle& style_;
  std::vector<Range> chunks_;
  size_t next_ = 0;
};

}  // namespace

std::vector<std::string> WrapParagraph(std::string_view text, const WrapStyle& style) {
  return Wrapper(text, style).Run();
}

}  // namespace avocet::tokenizer::jinja
