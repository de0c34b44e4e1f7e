// The letters in which byte-level tokenizers write bytes: printable Latin-1 characters stand for themselves, the other 68 bytes for
// U+0100 upwards in byte order (so a space is written U+0120). Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace avocet::tokenizer {

// The bytes that the letters stand for; nothing if a character is not such a letter. letters is valid UTF-8.
std::optional<std::string> LettersToBytes(std::string_view letters);

std::string BytesToLetters(std::string_view bytes);

}  // namespace avocet::tokenizer
