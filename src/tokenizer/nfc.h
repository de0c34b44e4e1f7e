// Unicode normalization form C (ICU), linear in the text, whatever the text is. Like the reference library it knows the characters of
// Unicode 9 only: later ones do not compose, decompose or change places. Immutable after construction; any thread may use it at once.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace avocet::tokenizer {

class NfcNormalizer {
 public:
  NfcNormalizer();
  NfcNormalizer(NfcNormalizer&&) noexcept;
  ~NfcNormalizer();

  // text is valid UTF-8. Nothing if it is in form C already, which most text is: no copy is made then.
  std::optional<std::string> Normalize(std::string_view text) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace avocet::tokenizer
