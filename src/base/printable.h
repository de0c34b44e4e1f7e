// Text from a file or a request, made safe to quote in a one-line message: control characters become '?', long text is cut.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace avocet {

inline std::string Printable(std::string_view text, size_t bytes_max = 120) {
  std::string out(text.substr(0, bytes_max));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  if (text.size() > bytes_max) {
    while (!out.empty() && (static_cast<unsigned char>(out.back()) & 0xc0u) == 0x80u) out.pop_back();  // never half a character
    if (!out.empty() && static_cast<unsigned char>(out.back()) >= 0xc0u) out.pop_back();
    out += "...";
  }
  return out;
}

}  // namespace avocet
