#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/printable.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/nfc.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer_file.h"
#include "tokenizer/tokenizer_spec.h"
#include "tokenizer/utf8.h"
#include "tokenizer/vocabulary.h"

namespace avocet::tokenizer {

namespace {

// The message of an error, with the file it is about.
template <typename T>
Result<T> InFile(std::string_view file, Result<T> result) {
  if (!result) result.error().message = fmt::format("{}: {}", file, result.error().message);
  return result;
}

// A symbolic link is fine: hub caches consist of them.
Result<std::string> ReadFile(const std::filesystem::path& path) {
  std::error_code status;
  if (!std::filesystem::is_regular_file(path, status)) return Fail(Errc::kNotFound, "{} is not a file", path.string());
  const auto num_bytes = std::filesystem::file_size(path, status);
  if (status) return Fail(Errc::kIo, "{} has no size: {}", path.string(), status.message());
  if (num_bytes > limits::kTokenizerBytesMax) {
    return Fail(Errc::kCorrupt, "{} has {} bytes, at most {} are read", path.string(), num_bytes, limits::kTokenizerBytesMax);
  }
  std::string content(num_bytes, '\0');
  std::ifstream stream(path, std::ios::binary);
  if (!stream.read(content.data(), static_cast<std::streamsize>(num_bytes))) {
    return Fail(Errc::kIo, "{}: {} bytes could not be read", path.string(), num_bytes);
  }
  return content;
}

// The added tokens of both files; where both have one, the later list's flags count.
class AddedTokenList {
 public:
  Result<void> Add(AddedToken token) {
    const auto [by_content, is_new] = index_of_.try_emplace(token.content, tokens_.size());
    if (!is_new) {
      AddedToken& known = tokens_[by_content->second];
      if (known.id != token.id) {
        return Fail(Errc::kCorrupt, "added token {} has ids {} and {}", Printable(token.content), known.id, token.id);
      }
      known = std::move(token);
      return {};
    }
    const auto [by_id, id_is_new] = content_of_.try_emplace(token.id, token.content);
    if (!id_is_new) {
      return Fail(Errc::kCorrupt, "added tokens {} and {} have the same id {}", Printable(by_id->second), Printable(token.content),
                  token.id);
    }
    tokens_.push_back(std::move(token));
    return {};
  }
  Result<void> AddAll(std::vector<AddedToken> tokens) {
    for (AddedToken& token : tokens) AVOCET_TRY_VOID(Add(std::move(token)));
    return {};
  }
  bool Has(const std::string& content) const { return index_of_.contains(content); }
  const std::vector<AddedToken>& tokens() const { return tokens_; }

 private:
  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string, size_t> index_of_;     // by content
  std::unordered_map<int32_t, std::string> content_of_;  // by id
};

Result<std::shared_ptr<Vocabulary>> FillVocabulary(const TokenizerFile& file, const std::vector<AddedToken>& added) {
  if (file.vocab.empty()) return Fail(Errc::kCorrupt, "model.vocab is missing or empty");
  int32_t id_max = 0;
  for (const TokenizerFile::Entry& entry : file.vocab) id_max = std::max(id_max, entry.id);
  for (const AddedToken& token : added) id_max = std::max(id_max, token.id);
  auto vocabulary = std::make_shared<Vocabulary>(id_max + 1, file.vocab.size(), file.text.size());
  for (const TokenizerFile::Entry& entry : file.vocab) AVOCET_TRY_VOID(vocabulary->AddPairToken(entry.id, file.EntryText(entry)));
  for (const AddedToken& token : added) AVOCET_TRY_VOID(vocabulary->AddAddedToken(token));
  return vocabulary;
}

Result<std::vector<Merge>> ResolveMerges(const TokenizerFile& file, const Vocabulary& vocabulary) {
  std::vector<Merge> merges;
  merges.reserve(file.merges.size());
  std::string merged_bytes;
  for (const TokenizerFile::Pair& pair : file.merges) {
    const auto find = [&](std::string_view letters) -> Result<int32_t> {
      const std::optional<int32_t> id = vocabulary.FindWritten(letters);
      if (!id) return Fail(Errc::kCorrupt, "merge {} names {}, which is not in the vocabulary", merges.size(), Printable(letters));
      return *id;
    };
    Merge merge;
    AVOCET_TRY(merge.left, find(file.LeftText(pair)));
    AVOCET_TRY(merge.right, find(file.RightText(pair)));
    merged_bytes.assign(vocabulary.Bytes(merge.left)).append(vocabulary.Bytes(merge.right));
    const std::optional<int32_t> merged = vocabulary.Find(merged_bytes);
    if (!merged) {
      return Fail(Errc::kCorrupt, "merge {} of {} and {} gives no token of the vocabulary", merges.size(), Printable(file.LeftText(pair)),
                  Printable(file.RightText(pair)));
    }
    merge.merged = *merged;
    merges.push_back(merge);
  }
  return merges;
}

}  // namespace

struct Tokenizer::Impl {
  std::shared_ptr<const Vocabulary> vocabulary;
  Bpe bpe;
  PreTokenizer pre_tokenizer;
  std::optional<NfcNormalizer> nfc;      // if the file asks for it
  AddedTokenMatcher raw_matcher;         // in the text as given
  AddedTokenMatcher normalized_matcher;  // in normalized text
  TokenizerConfig config;

  void EncodePieces(std::string_view normalized, PieceEncoder& encoder) const {
    pre_tokenizer.Split(normalized, [&encoder](std::string_view piece) { encoder.AppendPiece(piece); });
  }

  // text between matches of `matcher` goes to encode_rest.
  template <typename EncodeRest>
  static void EncodeAround(std::string_view text, const AddedTokenMatcher& matcher, PieceEncoder& encoder, EncodeRest&& encode_rest) {
    size_t from = 0;
    while (const auto match = matcher.Find(text, from)) {
      encode_rest(text.substr(from, match->begin - from));
      encoder.AppendId(match->id);
      from = match->end;
    }
    encode_rest(text.substr(from));
  }

  void EncodeSegment(std::string_view text, AddedTokens added, PieceEncoder& encoder) const {
    const std::optional<std::string> changed = nfc ? nfc->Normalize(text) : std::nullopt;
    const std::string_view normalized = changed ? std::string_view(*changed) : text;
    if (added == AddedTokens::kPlainText || normalized_matcher.empty()) {
      EncodePieces(normalized, encoder);
      return;
    }
    EncodeAround(normalized, normalized_matcher, encoder, [&](std::string_view rest) { EncodePieces(rest, encoder); });
  }
};

namespace {

struct Matchers {
  AddedTokenMatcher raw;
  AddedTokenMatcher normalized;
};
Result<Matchers> MakeMatchers(const std::vector<AddedToken>& added, const std::optional<NfcNormalizer>& nfc) {
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized;
  for (AddedToken token : added) {
    if (!token.is_normalized) {
      raw.push_back(std::move(token));
      continue;
    }
    if (nfc) {
      if (std::optional<std::string> content = nfc->Normalize(token.content)) token.content = std::move(*content);
    }
    normalized.push_back(std::move(token));
  }
  std::ranges::sort(normalized, {}, &AddedToken::content);
  const auto twin = std::ranges::adjacent_find(normalized, {}, &AddedToken::content);
  if (twin != normalized.end()) {
    return Fail(Errc::kCorrupt, "added tokens {} and {} are the same text once normalized", twin->id, std::next(twin)->id);
  }
  return Matchers{AddedTokenMatcher(std::move(raw)), AddedTokenMatcher(std::move(normalized))};
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::Parse(std::string_view tokenizer_json, std::string_view tokenizer_config_json) {
  constexpr std::string_view kFile = "tokenizer.json";
  constexpr std::string_view kConfigFile = "tokenizer_config.json";
  AVOCET_TRY(const TokenizerFile file, InFile(kFile, ReadTokenizerFile(tokenizer_json)));
  AVOCET_TRY(TokenizerSpec spec, InFile(kFile, ReadSpec(file.rest)));
  TokenizerConfig config;
  if (!tokenizer_config_json.empty()) {
    AVOCET_TRY(config, InFile(kConfigFile, ReadTokenizerConfig(tokenizer_config_json)));
  }

  AddedTokenList added;
  AVOCET_TRY_VOID(InFile(kFile, added.AddAll(std::move(spec.added))));
  AVOCET_TRY_VOID(InFile(kConfigFile, added.AddAll(std::move(config.added))));
  AVOCET_TRY(const std::shared_ptr<Vocabulary> vocabulary, InFile(kFile, FillVocabulary(file, added.tokens())));
  // A special token that is only an entry of the vocabulary is matched whole and skipped like an added one, as in transformers.
  for (const std::string& content : config.named_specials) {
    if (added.Has(content)) continue;
    const std::optional<int32_t> id = vocabulary->FindWritten(content);
    if (!id) {
      LogWarning("tokenizer_config.json names {}, which is not a token", Printable(content));
      continue;
    }
    const AddedToken token{.content = content, .id = *id, .is_special = true};
    AVOCET_TRY_VOID(InFile(kConfigFile, added.Add(token)));
    AVOCET_TRY_VOID(InFile(kConfigFile, vocabulary->AddAddedToken(token)));
  }
  AVOCET_TRY(const std::vector<Merge> merges, InFile(kFile, ResolveMerges(file, *vocabulary)));
  AVOCET_TRY(Bpe bpe, InFile(kFile, Bpe::Create(vocabulary, merges, spec.whole_pieces)));
  AVOCET_TRY(PreTokenizer pre_tokenizer, InFile(kFile, PreTokenizer::Create(spec.split_pattern)));
  std::optional<NfcNormalizer> nfc;
  if (spec.normalizer == Normalizer::kNfc) nfc.emplace();
  AVOCET_TRY(Matchers matchers, InFile(kFile, MakeMatchers(added.tokens(), nfc)));
  auto impl = std::unique_ptr<Impl>(new Impl{vocabulary, std::move(bpe), std::move(pre_tokenizer), std::move(nfc), std::move(matchers.raw),
                                             std::move(matchers.normalized), std::move(config)});
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(impl)));
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::Load(const std::string& model_dir) {
  const std::filesystem::path folder(model_dir);
  AVOCET_TRY(const std::string tokenizer_json, ReadFile(folder / "tokenizer.json"));
  std::string tokenizer_config_json;
  std::error_code status;
  if (std::filesystem::exists(folder / "tokenizer_config.json", status)) {
    AVOCET_TRY(tokenizer_config_json, ReadFile(folder / "tokenizer_config.json"));
  }
  return Parse(tokenizer_json, tokenizer_config_json);
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

std::vector<int32_t> Tokenizer::Encode(std::string_view text, AddedTokens added) const {
  CHECK(text.size() <= limits::kEncodeBytesMax, "a text of {} bytes, at most {}", text.size(), limits::kEncodeBytesMax);
  std::string repaired;
  if (ValidPrefixBytes(text) != text.size()) {
    repaired = ReplaceInvalid(text);
    text = repaired;
  }
  PieceEncoder encoder(impl_->bpe, text.size());
  const auto encode_segment = [&](std::string_view segment) { impl_->EncodeSegment(segment, added, encoder); };
  if (added == AddedTokens::kPlainText) {
    encode_segment(text);
  } else {
    Impl::EncodeAround(text, impl_->raw_matcher, encoder, encode_segment);
  }
  return encoder.Take();
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, SpecialTokens special) const {
  std::string bytes;
  for (const int32_t id : ids) {
    if (special == SpecialTokens::kKeep || !IsSpecial(id)) bytes += TokenBytes(id);
  }
  return ValidPrefixBytes(bytes) == bytes.size() ? bytes : ReplaceInvalid(bytes);
}

int32_t Tokenizer::vocab_size() const {
  return impl_->vocabulary->num_ids();
}
std::string_view Tokenizer::TokenBytes(int32_t id) const {
  return impl_->vocabulary->Bytes(id);
}
std::string Tokenizer::TokenString(int32_t id) const {
  return impl_->vocabulary->Written(id);
}
bool Tokenizer::HasToken(int32_t id) const {
  return impl_->vocabulary->Has(id);
}
bool Tokenizer::IsAdded(int32_t id) const {
  return impl_->vocabulary->IsAdded(id);
}
bool Tokenizer::IsSpecial(int32_t id) const {
  return impl_->vocabulary->IsSpecial(id);
}

std::optional<int32_t> Tokenizer::FindAdded(std::string_view content) const {
  if (const auto id = impl_->raw_matcher.FindContent(content)) return id;
  return impl_->normalized_matcher.FindContent(content);
}

int32_t Tokenizer::max_token_bytes() const {
  return impl_->vocabulary->max_token_bytes();
}
const std::string& Tokenizer::eos_token() const {
  return impl_->config.eos_token;
}
const std::string& Tokenizer::pad_token() const {
  return impl_->config.pad_token;
}
const std::string& Tokenizer::bos_token() const {
  return impl_->config.bos_token;
}
const std::optional<std::string>& Tokenizer::config_chat_template() const {
  return impl_->config.chat_template;
}

}  // namespace avocet::tokenizer
