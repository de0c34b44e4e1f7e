#include "server/stop_matcher.h"

#include <algorithm>

#include "base/check.h"

namespace avocet::server {

StopSet::StopSet(std::span<const std::string> stops) {
  for (const std::string& text : stops) {
    DCHECK(!text.empty(), "an empty stop string matches everywhere");
    // The failure function of Knuth, Morris and Pratt.
    Stop stop{text, std::vector<int32_t>(text.size() + 1, 0)};
    int32_t length = 0;
    for (size_t i = 1; i < text.size(); ++i) {
      while (length > 0 && text[i] != text[static_cast<size_t>(length)]) length = stop.fallback[static_cast<size_t>(length)];
      if (text[i] == text[static_cast<size_t>(length)]) ++length;
      stop.fallback[i + 1] = length;
    }
    stops_.push_back(std::move(stop));
  }
}

StopMatcher::StopMatcher(const StopSet& set, StopText stop_text) : set_(&set), stop_text_(stop_text), matched_(set.stops().size(), 0) {}

bool StopMatcher::Push(std::string_view text, std::string& out) {
  DCHECK(found_.empty(), "text after the stop string");
  if (set_->empty()) {
    out += text;
    return false;
  }
  const std::span<const StopSet::Stop> stops = set_->stops();
  const size_t num_held = held_.size();
  held_ += text;
  int32_t longest = 0;
  for (size_t i = num_held; i < held_.size(); ++i) {
    longest = 0;
    for (size_t s = 0; s < stops.size(); ++s) {
      const StopSet::Stop& stop = stops[s];
      int32_t length = matched_[s];
      while (length > 0 && held_[i] != stop.text[static_cast<size_t>(length)]) length = stop.fallback[static_cast<size_t>(length)];
      if (held_[i] == stop.text[static_cast<size_t>(length)]) ++length;
      if (length == static_cast<int32_t>(stop.text.size())) {
        found_ = stop.text;
        const size_t end = i + 1;
        out.append(held_, 0, stop_text_ == StopText::kKeep ? end : end - stop.text.size());
        held_.clear();
        return true;
      }
      matched_[s] = length;
      longest = std::max(longest, length);
    }
  }
  if (text.empty()) return false;
  // A stop string that stays in the text need not be held back.
  const size_t num_certain = stop_text_ == StopText::kKeep ? held_.size() : held_.size() - static_cast<size_t>(longest);
  out.append(held_, 0, num_certain);
  held_.erase(0, num_certain);
  return false;
}

void StopMatcher::Flush(std::string& out) {
  out += held_;
  held_.clear();
}

}  // namespace avocet::server
