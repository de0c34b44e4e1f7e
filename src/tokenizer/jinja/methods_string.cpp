// Methods of strings that search, split, join and fill.
#include <algorithm>
#include <array>

#include "tokenizer/jinja/eval.h"
#include "tokenizer/jinja/format.h"
#include "tokenizer/jinja/split.h"
#include "tokenizer/jinja/text.h"

namespace avocet::tokenizer::jinja {
namespace {

Value Like(const Value& self, std::string_view text) {
  return self.string().is_markup ? Value::Markup(std::string(text)) : Value::String(std::string(text));
}

Result<Value> LikeEach(const Value& self, const std::vector<std::string_view>& pieces, SequenceKind kind, Budget& budget) {
  AVOCET_TRY_VOID(budget.Items(2 * pieces.size()));
  std::vector<Value> items;
  items.reserve(pieces.size());
  for (const std::string_view piece : pieces) items.push_back(Like(self, piece));
  return MakeSequence(kind, std::move(items), budget);
}

// The part of a text between two indices, as Python clamps them. first: of what follows the text, in code points.
struct Window {
  std::string_view text;
  int64_t first = 0;
  bool is_valid = false;  // the indices are in order
};

Result<Window> WindowOf(Evaluator& evaluator, const Value& self, const Bound& bound, size_t start_argument) {
  if (bound.IsNone(start_argument) && bound.IsNone(start_argument + 1)) return Window{self.text(), 0, true};
  AVOCET_TRY_VOID(evaluator.budget().Text(self.text().size()));
  const int64_t size = self.string().num_code_points;
  const auto clamp = [size](int64_t index) { return index < 0 ? std::max<int64_t>(index + size, 0) : index; };
  int64_t start = 0;
  int64_t end = size;
  if (!bound.IsNone(start_argument)) {
    AVOCET_TRY(const int64_t index, bound.Int(start_argument, 0));
    start = clamp(index);
  }
  if (!bound.IsNone(start_argument + 1)) {
    AVOCET_TRY(const int64_t index, bound.Int(start_argument + 1, 0));
    end = std::min(clamp(index), size);
  }
  if (start > end) return Window{};
  const size_t begin_byte = self.string().is_ascii() ? static_cast<size_t>(start) : ByteOffset(self.text(), start);
  std::string_view text = self.text().substr(begin_byte);
  text = text.substr(0, self.string().is_ascii() ? static_cast<size_t>(end - start) : ByteOffset(text, end - start));
  return Window{text, start, true};
}

enum class From : uint8_t { kBegin, kEnd };

// The index of the argument's first or last occurrence, or -1.
Result<int64_t> IndexIn(Evaluator& evaluator, const Value& self, const Bound& bound, From from) {
  AVOCET_TRY(const std::string_view needle, bound.Text(0, ""));
  AVOCET_TRY_VOID(evaluator.budget().Text(self.text().size()));
  AVOCET_TRY(const Window window, WindowOf(evaluator, self, bound, 1));
  if (!window.is_valid) return -1;
  if (from == From::kEnd) {
    AVOCET_TRY_VOID(evaluator.budget().Steps(StepsFromEnd(window.text, needle)));
  }
  const size_t at = from == From::kBegin ? FindText(window.text, needle) : FindTextFromEnd(window.text, needle);
  return at == std::string_view::npos ? -1 : window.first + CountCodePoints(window.text.substr(0, at));
}

template <From kFrom>
Result<Value> Find(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY(const int64_t index, IndexIn(evaluator, self, bound, kFrom));
  return Value::Int(index);
}

template <From kFrom>
Result<Value> Index(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY(const int64_t index, IndexIn(evaluator, self, bound, kFrom));
  if (index < 0) return Fail(Errc::kInvalidArgument, "substring not found");
  return Value::Int(index);
}

int64_t CountOf(std::string_view text, std::string_view needle) {
  if (needle.empty()) return CountCodePoints(text) + 1;
  int64_t count = 0;
  for (size_t at = FindText(text, needle); at != std::string_view::npos; at = FindText(text, needle, at + needle.size())) ++count;
  return count;
}

Result<Value> Count(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY(const std::string_view needle, bound.Text(0, ""));
  AVOCET_TRY_VOID(evaluator.budget().Text(self.text().size()));
  AVOCET_TRY(const Window window, WindowOf(evaluator, self, bound, 1));
  return Value::Int(window.is_valid ? CountOf(window.text, needle) : 0);
}

template <From kFrom>
Result<Value> StartsOrEnds(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY(const Window window, WindowOf(evaluator, self, bound, 1));
  std::vector<Value> affixes = {*bound[0]};
  if (bound[0]->is_tuple()) affixes = bound[0]->sequence().items;
  AVOCET_TRY_VOID(evaluator.budget().Items(affixes.size()));
  for (const Value& affix : affixes) {
    if (!affix.is_string()) return Fail(Errc::kInvalidArgument, "a string or a tuple of strings is needed, not {}", affix.type_name());
    if (!window.is_valid) continue;
    if (kFrom == From::kBegin ? window.text.starts_with(affix.text()) : window.text.ends_with(affix.text())) return Value::Bool(true);
  }
  return Value::Bool(false);
}

// split(sep=None, maxsplit=-1)
template <From kFrom>
Result<Value> SplitMethod(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY_VOID(evaluator.budget().Text(self.text().size()));
  AVOCET_TRY(const int64_t splits_max, bound.Int(1, -1));
  if (bound.IsNone(0)) {
    const auto pieces = kFrom == From::kBegin ? SplitAtSpace(self.text(), splits_max) : SplitAtSpaceFromEnd(self.text(), splits_max);
    return LikeEach(self, pieces, SequenceKind::kList, evaluator.budget());
  }
  AVOCET_TRY(const std::string_view separator, bound.Text(0, ""));
  if (separator.empty()) return Fail(Errc::kInvalidArgument, "empty separator");
  if (kFrom == From::kEnd) {
    AVOCET_TRY_VOID(evaluator.budget().Steps(StepsFromEnd(self.text(), separator)));
  }
  const auto pieces = kFrom == From::kBegin ? Split(self.text(), separator, splits_max) : SplitFromEnd(self.text(), separator, splits_max);
  return LikeEach(self, pieces, SequenceKind::kList, evaluator.budget());
}

template <From kFrom>
Result<Value> Partition(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY_VOID(evaluator.budget().Text(self.text().size()));
  AVOCET_TRY(const std::string_view separator, bound.Text(0, ""));
  if (separator.empty()) return Fail(Errc::kInvalidArgument, "empty separator");
  AVOCET_TRY_VOID(evaluator.budget().Steps(StepsFromEnd(self.text(), separator)));
  const std::string_view text = self.text();
  const size_t at = kFrom == From::kBegin ? FindText(text, separator) : FindTextFromEnd(text, separator);
  std::vector<std::string_view> parts =
      kFrom == From::kBegin ? std::vector<std::string_view>{text, "", ""} : std::vector<std::string_view>{"", "", text};
  if (at != std::string_view::npos) parts = {text.substr(0, at), separator, text.substr(at + separator.size())};
  return LikeEach(self, parts, SequenceKind::kTuple, evaluator.budget());
}

enum class Side : uint8_t { kBoth, kLeft, kRight };
template <Side kSide>
Result<Value> Strip(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY_VOID(evaluator.budget().Text(self.text().size()));
  std::optional<std::string_view> chars;
  if (!bound.IsNone(0)) {
    AVOCET_TRY(chars, bound.Text(0, ""));
    AVOCET_TRY_VOID(evaluator.budget().Text(chars->size()));
  }
  std::string_view text = self.text();
  if (kSide != Side::kRight) text = StripLeft(text, chars);
  if (kSide != Side::kLeft) text = StripRight(text, chars);
  return text.size() == self.text().size() ? self : Like(self, text);
}

// Between all characters, and at both ends.
std::string Interspersed(std::string_view text, std::string_view what, int64_t count_max) {
  std::string out;
  for (size_t at = 0; at <= text.size();) {
    if (count_max > 0) {
      out += what;
      --count_max;
    }
    if (at == text.size()) break;
    const size_t begin = at;
    NextCodePoint(text, at);
    out.append(text, begin, at - begin);
  }
  return out;
}

Result<Value> Replace(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY(const std::string_view old, bound.Text(0, ""));
  AVOCET_TRY(const std::string_view given, bound.Text(1, ""));
  AVOCET_TRY(int64_t count_max, bound.Int(2, -1));
  const std::string escaped = self.string().is_markup && !bound[1]->string().is_markup ? EscapeHtml(given) : std::string();
  const std::string_view replacement = escaped.empty() ? given : escaped;
  AVOCET_TRY_VOID(evaluator.budget().Text(self.text().size()));
  const std::string_view text = self.text();
  const int64_t num_found = CountOf(text, old);
  if (count_max < 0 || count_max > num_found) count_max = num_found;
  if (count_max == 0) return self;
  AVOCET_TRY_VOID(evaluator.budget().Text(text.size() + replacement.size() * static_cast<size_t>(count_max)));
  if (old.empty()) return Like(self, Interspersed(text, replacement, count_max));
  std::string out;
  size_t begin = 0;
  for (int64_t i = 0; i < count_max; ++i) {
    const size_t at = FindText(text, old, begin);
    out.append(text, begin, at - begin).append(replacement);
    begin = at + old.size();
  }
  return Like(self, out.append(text, begin));
}

Result<Value> Join(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY(const std::vector<Value> items, Iterate(*bound[0], evaluator.budget()));
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_string())
      return Fail(Errc::kInvalidArgument, "sequence item {}: expected str instance, {} found", i, items[i].type_name());
    const bool is_escaped = self.string().is_markup && !items[i].string().is_markup;
    const std::string item = is_escaped ? EscapeHtml(items[i].text()) : std::string(items[i].text());
    AVOCET_TRY_VOID(evaluator.budget().Text(self.text().size() + item.size()));
    AVOCET_TRY_VOID(evaluator.budget().Fits(out.size() + self.text().size() + item.size()));
    if (i > 0) out += self.text();
    out += item;
  }
  return Like(self, out);
}

Result<Value> SplitLinesMethod(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY_VOID(evaluator.budget().Text(self.text().size()));
  const auto lines = SplitLines(self.text(), bound.Truth(0, false) ? LineEnds::kKeep : LineEnds::kDrop);
  return LikeEach(self, lines, SequenceKind::kList, evaluator.budget());
}

Result<Value> RemovePrefix(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY_VOID(evaluator.budget().Text(self.text().size()));
  AVOCET_TRY(const std::string_view prefix, bound.Text(0, ""));
  return self.text().starts_with(prefix) ? Like(self, self.text().substr(prefix.size())) : self;
}

Result<Value> RemoveSuffix(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY_VOID(evaluator.budget().Text(self.text().size()));
  AVOCET_TRY(const std::string_view suffix, bound.Text(0, ""));
  return self.text().ends_with(suffix) ? Like(self, self.text().substr(0, self.text().size() - suffix.size())) : self;
}

// center, ljust, rjust: (width, fillchar=' ')
template <Align kAlign>
Result<Value> Justify(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY(const int64_t width, bound.Int(0, 0));
  AVOCET_TRY(const std::string_view fill, bound.Text(1, " "));
  if (CountCodePoints(fill) != 1) return Fail(Errc::kInvalidArgument, "the fill character must be exactly one character long");
  size_t at = 0;
  const uint32_t c = NextCodePoint(fill, at);
  if (kAlign != Align::kCenter) {
    AVOCET_TRY(const std::string text, Pad(self.text(), width, c, kAlign, evaluator.budget()));
    return Like(self, text);
  }
  AVOCET_TRY(const std::string text, Center(self.text(), width, c, evaluator.budget()));
  return Like(self, text);
}

Result<Value> ZeroFill(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY(const int64_t width, bound.Int(0, 0));
  std::string_view digits = self.text();
  const bool has_sign = digits.starts_with('-') || digits.starts_with('+');
  if (has_sign) digits.remove_prefix(1);
  AVOCET_TRY(const std::string text, Pad(digits, width - (has_sign ? 1 : 0), '0', Align::kRight, evaluator.budget()));
  return Like(self, has_sign ? std::string(1, self.text()[0]) + text : text);
}

Result<Value> ExpandTabs(Evaluator& evaluator, const Value& self, const Bound& bound) {
  AVOCET_TRY(const int64_t tab_size, bound.Int(0, 8));
  std::string out;
  int64_t column = 0;
  for (size_t at = 0; at < self.text().size();) {
    const size_t begin = at;
    const uint32_t c = NextCodePoint(self.text(), at);
    if (c == '\t') {
      const int64_t num_blanks = tab_size > 0 ? tab_size - column % tab_size : 0;
      AVOCET_TRY_VOID(evaluator.budget().Fits(out.size() + static_cast<size_t>(num_blanks)));
      AVOCET_TRY_VOID(evaluator.budget().Text(static_cast<size_t>(num_blanks)));
      out.append(static_cast<size_t>(num_blanks), ' ');
      column += num_blanks;
    } else {
      out.append(self.text(), begin, at - begin);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
  }
  AVOCET_TRY_VOID(evaluator.budget().Text(out.size()));
  return Like(self, out);
}

// translate({code point: replacement})
Result<Value> Translate(Evaluator& evaluator, const Value& self, const Bound& bound) {
  if (!bound[0]->is_dict()) return Fail(Errc::kInvalidArgument, "translate() needs a mapping, not {}", bound[0]->type_name());
  std::string out;
  for (size_t at = 0; at < self.text().size();) {
    const size_t begin = at;
    const uint32_t c = NextCodePoint(self.text(), at);
    AVOCET_TRY(const Value* const found, bound[0]->dict().Find(Value::Int(c), evaluator.budget()));
    AVOCET_TRY_VOID(evaluator.budget().Steps(1));
    if (found == nullptr) {
      out.append(self.text(), begin, at - begin);
    } else if (found->is_string()) {
      AVOCET_TRY_VOID(evaluator.budget().Text(found->text().size()));
      out += found->text();
    } else if (found->is_integer() && found->integer() >= 0 && found->integer() <= 0x10FFFF &&
               (found->integer() < 0xD800 || found->integer() > 0xDFFF)) {
      AppendUtf8(static_cast<uint32_t>(found->integer()), out);
    } else if (!found->is_none()) {
      return Fail(Errc::kInvalidArgument, "character mapping must return a character, None or str, not {}", found->type_name());
    }
    AVOCET_TRY_VOID(evaluator.budget().Fits(out.size()));
  }
  return Like(self, out);
}

Result<Value> Format(Evaluator& evaluator, const Value& self, const Bound& bound) {
  return BraceFormat(evaluator, self, bound.all());
}
Result<Value> FormatMap(Evaluator& evaluator, const Value& self, const Bound& bound) {
  return BraceFormatMap(evaluator, self, *bound[0]);
}

constexpr std::array<NativeFunction, 27> kMethods = {{
    {"center", {"/width", "/fillchar"}, 1, Justify<Align::kCenter>},
    {"count", {"/sub", "/start", "/end"}, 1, Count},
    {"endswith", {"/suffix", "/start", "/end"}, 1, StartsOrEnds<From::kEnd>},
    {"expandtabs", {"tabsize"}, 0, ExpandTabs},
    {"find", {"/sub", "/start", "/end"}, 1, Find<From::kBegin>},
    {"format", {"*"}, 0, Format},
    {"format_map", {"/mapping"}, 1, FormatMap},
    {"index", {"/sub", "/start", "/end"}, 1, Index<From::kBegin>},
    {"join", {"/iterable"}, 1, Join},
    {"ljust", {"/width", "/fillchar"}, 1, Justify<Align::kLeft>},
    {"lstrip", {"/chars"}, 0, Strip<Side::kLeft>},
    {"partition", {"/sep"}, 1, Partition<From::kBegin>},
    {"removeprefix", {"/prefix"}, 1, RemovePrefix},
    {"removesuffix", {"/suffix"}, 1, RemoveSuffix},
    {"replace", {"/old", "/new", "/count"}, 2, Replace},
    {"rfind", {"/sub", "/start", "/end"}, 1, Find<From::kEnd>},
    {"rindex", {"/sub", "/start", "/end"}, 1, Index<From::kEnd>},
    {"rjust", {"/width", "/fillchar"}, 1, Justify<Align::kRight>},
    {"rpartition", {"/sep"}, 1, Partition<From::kEnd>},
    {"rsplit", {"sep", "maxsplit"}, 0, SplitMethod<From::kEnd>},
    {"rstrip", {"/chars"}, 0, Strip<Side::kRight>},
    {"split", {"sep", "maxsplit"}, 0, SplitMethod<From::kBegin>},
    {"splitlines", {"keepends"}, 0, SplitLinesMethod},
    {"startswith", {"/prefix", "/start", "/end"}, 1, StartsOrEnds<From::kBegin>},
    {"strip", {"/chars"}, 0, Strip<Side::kBoth>},
    {"translate", {"/table"}, 1, Translate},
    {"zfill", {"/width"}, 1, ZeroFill},
}};
static_assert(std::ranges::is_sorted(kMethods, {}, &NativeFunction::name));

}  // namespace

std::span<const NativeFunction> StringMethods() {
  return kMethods;
}

}  // namespace avocet::tokenizer::jinja
