// Added tokens (control words such as <|im_start|>) and finding them in text. Immutable after construction.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace avocet::tokenizer {

// The flags are tokenizer.json's.
struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool is_special = false;
  bool is_single_word = false;  // matches only where no word character touches it
  bool strips_left = false;     // takes the white space before it along
  bool strips_right = false;    // and after it
  bool is_normalized = false;   // is looked for in normalized text; otherwise in the text as given
};

// Finds the tokens of one set in text: at the leftmost position the longest one, as the reference's leftmost-longest automaton does.
// (Where a token that begins with white space follows one that strips right, the reference uses that white space twice; here once.)
class AddedTokenMatcher {
 public:
  AddedTokenMatcher() = default;
  // The contents are not empty and differ.
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }

  // text[begin, end) becomes the token.
  struct Match {
    size_t begin = 0;
    size_t end = 0;
    int32_t id = 0;
  };
  // The first match in text[from, text.size()); what is before `from` is context only. text is valid UTF-8.
  std::optional<Match> Find(std::string_view text, size_t from) const;

  std::optional<int32_t> FindContent(std::string_view content) const;

 private:
  // The longest token at the begin of text, or nullptr.
  const AddedToken* LongestAt(std::string_view text) const;
  size_t NextCandidate(std::string_view text, size_t at) const;

  std::vector<AddedToken> tokens_;  // by content
  struct Range {
    uint32_t begin = 0;
    uint32_t end = 0;
  };
  std::array<Range, 256> by_first_byte_{};  // into tokens_
  std::optional<char> only_first_byte_;     // if all tokens begin alike, as in the family: '<'
};

}  // namespace avocet::tokenizer
