#include "tokenizer/nfc.h"

#include <algorithm>
#include <compare>
#include <cstdint>
#include <vector>

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>
#include <unicode/unistr.h>

#include "base/check.h"
#include "tokenizer/utf8.h"

namespace avocet::tokenizer {

namespace {

// Below U+0300 everything is in form C and nothing combines; from U+3100 to U+A66E (CJK, Yi) nothing combines either.
constexpr unsigned char kFirstLeadThatMatters = 0xCC;  // of U+0300
constexpr uint32_t kFirstMark = 0x300;
constexpr uint32_t kMarkFreeBegin = 0x3100;
constexpr uint32_t kMarkFreeEnd = 0xA66F;

// ICU sorts a run of combining marks by insertion, which takes a minute for a megabyte of marks in the worst order. Longer runs than
// this are put into canonical order here first; the order of marks of different classes does not change the normal form.
constexpr size_t kLongMarkRun = 64;

const icu::Normalizer2& UnfilteredNfc() {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* normalizer = icu::Normalizer2::getNFCInstance(status);
  CHECK(U_SUCCESS(status), "icu has no nfc data: {}", u_errorName(status));
  return *normalizer;
}

icu::UnicodeSet KnownCharacters() {
  UErrorCode status = U_ZERO_ERROR;
  icu::UnicodeSet known(u"[:age=9.0:]", status);  // assigned in 9.0 or before
  CHECK(U_SUCCESS(status), "icu has no age data: {}", u_errorName(status));
  known.freeze();
  return known;
}

// The marks of text, decomposed and in canonical order.
std::string OrderMarks(std::string_view text) {
  struct Mark {
    uint8_t combining_class;
    uint32_t index;  // marks of one class keep their order
    uint32_t value;
    auto operator<=>(const Mark&) const = default;
  };
  std::vector<Mark> marks;
  const auto append = [&marks](UChar32 mark) {
    marks.push_back({u_getCombiningClass(mark), static_cast<uint32_t>(marks.size()), static_cast<uint32_t>(mark)});
  };
  const icu::Normalizer2& normalizer = UnfilteredNfc();
  for (size_t at = 0; at < text.size();) {
    const CodePoint mark = DecodeValid(text.data() + at);
    icu::UnicodeString parts;
    if (normalizer.getDecomposition(static_cast<UChar32>(mark.value), parts)) {
      for (int32_t i = 0; i < parts.length(); i = parts.moveIndex32(i, 1)) append(parts.char32At(i));
    } else {
      append(static_cast<UChar32>(mark.value));
    }
    at += static_cast<size_t>(mark.num_bytes);
  }
  std::ranges::sort(marks);
  std::string ordered;
  ordered.reserve(text.size());
  for (const Mark& mark : marks) AppendUtf8(mark.value, ordered);
  return ordered;
}

}  // namespace

struct NfcNormalizer::Impl {
  icu::UnicodeSet known = KnownCharacters();
  icu::FilteredNormalizer2 normalizer{UnfilteredNfc(), known};

  bool StartsWithMark(uint32_t code_point) const {
    if (code_point < kFirstMark || (code_point >= kMarkFreeBegin && code_point < kMarkFreeEnd)) return false;
    const auto c = static_cast<UChar32>(code_point);
    return u_getIntPropertyValue(c, UCHAR_LEAD_CANONICAL_COMBINING_CLASS) != 0 && known.contains(c) != 0;
  }

  // A canonically equivalent text whose long runs of marks are in order; nothing if there is no long run.
  std::optional<std::string> OrderLongMarkRuns(std::string_view text) const {
    std::optional<std::string> ordered;
    size_t copied = 0;     // text[0, copied) is in `ordered`
    size_t run_begin = 0;  // of the marks before `at`
    size_t num_marks = 0;
    for (size_t at = 0; at <= text.size();) {
      const CodePoint next = at < text.size() ? DecodeValid(text.data() + at) : CodePoint{0, 1};
      if (StartsWithMark(next.value)) {
        if (num_marks++ == 0) run_begin = at;
      } else {
        if (num_marks > kLongMarkRun) {
          if (!ordered) ordered.emplace();
          ordered->append(text.substr(copied, run_begin - copied));
          ordered->append(OrderMarks(text.substr(run_begin, at - run_begin)));
          copied = at;
        }
        num_marks = 0;
      }
      at += static_cast<size_t>(next.num_bytes);
    }
    if (ordered) ordered->append(text.substr(copied));
    return ordered;
  }
};

NfcNormalizer::NfcNormalizer() : impl_(std::make_unique<const Impl>()) {}
NfcNormalizer::NfcNormalizer(NfcNormalizer&&) noexcept = default;
NfcNormalizer::~NfcNormalizer() = default;

std::optional<std::string> NfcNormalizer::Normalize(std::string_view text) const {
  const bool needs_icu = std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) >= kFirstLeadThatMatters; });
  if (!needs_icu) return std::nullopt;

  std::optional<std::string> ordered = impl_->OrderLongMarkRuns(text);
  if (ordered) text = *ordered;
  UErrorCode status = U_ZERO_ERROR;
  const icu::StringPiece piece(text.data(), static_cast<int32_t>(text.size()));
  const bool is_normal = impl_->normalizer.isNormalizedUTF8(piece, status) != 0;
  CHECK(U_SUCCESS(status), "icu could not check {} bytes: {}", text.size(), u_errorName(status));
  if (is_normal) return ordered;

  std::string normal;
  normal.reserve(text.size());
  icu::StringByteSink<std::string> sink(&normal);
  impl_->normalizer.normalizeUTF8(0, piece, sink, nullptr, status);
  CHECK(U_SUCCESS(status), "icu could not normalize {} bytes: {}", text.size(), u_errorName(status));
  return normal;
}

}  // namespace avocet::tokenizer
