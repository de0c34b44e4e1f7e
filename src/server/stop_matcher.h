// Finds stop strings in text that comes in pieces, and holds back what may be the beginning of one. The outcome does not depend on
// how the text is cut: the stop string that is complete first ends the text; of those that end at the same byte, the first listed.
// Linear in the text times the number of stop strings, whatever they are. StopSet is shared by a request's choices; a matcher has one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace avocet::server {

class StopSet {
 public:
  explicit StopSet(std::span<const std::string> stops);  // none of them empty

  struct Stop {
    std::string text;
    std::vector<int32_t> fallback;  // [i]: length of the longest proper prefix of text that is a suffix of its first i bytes
  };
  std::span<const Stop> stops() const { return stops_; }
  bool empty() const { return stops_.empty(); }

 private:
  std::vector<Stop> stops_;
};

enum class StopText : uint8_t { kDrop, kKeep };  // include_stop_str_in_output

class StopMatcher {
 public:
  // set: borrowed, outlives the matcher.
  StopMatcher(const StopSet& set, StopText stop_text);

  // Appends to `out` what is certain now. True: a stop string is complete, found() names it, and no more text may be pushed.
  bool Push(std::string_view text, std::string& out);
  // The end of the text: appends what was held back.
  void Flush(std::string& out);

  std::string_view found() const { return found_; }

 private:
  const StopSet* set_;
  StopText stop_text_;
  std::vector<int32_t> matched_;  // per stop string: bytes of it that the text so far ends with
  std::string held_;              // the longest of these
  std::string_view found_;
};

}  // namespace avocet::server
