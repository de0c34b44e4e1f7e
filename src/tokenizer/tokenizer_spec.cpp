#include "tokenizer/tokenizer_spec.h"

#include <array>
#include <charconv>
#include <system_error>
#include <utility>

#include "base/limits.h"
#include "base/printable.h"
#include "tokenizer/tokenizer_file.h"

namespace avocet::tokenizer {

namespace {

using Json = nlohmann::json;

const Json& Member(const Json& object, const char* key) {
  static const Json kNull;
  const auto found = object.find(key);  // end() for everything but an object
  return found == object.end() ? kNull : *found;
}

// A member that is a boolean, or `absent` where it is missing or null.
Result<bool> Flag(const Json& object, const char* key, bool absent) {
  const Json& value = Member(object, key);
  if (value.is_null()) return absent;
  if (!value.is_boolean()) return Fail(Errc::kCorrupt, "{} is {}, not true or false", key, value.type_name());
  return value.get<bool>();
}

// A member that is a string; empty where it is missing or null.
Result<std::string> Text(const Json& object, const char* key) {
  const Json& value = Member(object, key);
  if (value.is_null()) return std::string();
  if (!value.is_string()) return Fail(Errc::kCorrupt, "{} is {}, not a string", key, value.type_name());
  return value.get<std::string>();
}

// The "type" of a component, or empty for null.
Result<std::string> TypeOf(const Json& component, std::string_view what) {
  if (component.is_null()) return std::string();
  if (!component.is_object()) return Fail(Errc::kCorrupt, "{} is {}, not an object", what, component.type_name());
  AVOCET_TRY(std::string type, Text(component, "type"));
  if (type.empty()) return Fail(Errc::kCorrupt, "{} has no type", what);
  return type;
}

// The parts of a component: those of a Sequence under `list_key`, else itself; none for null.
Result<std::vector<const Json*>> Parts(const Json& component, const char* list_key, std::string_view what) {
  std::vector<const Json*> parts;
  AVOCET_TRY(const std::string type, TypeOf(component, what));
  if (type.empty()) return parts;
  if (type != "Sequence") {
    parts.push_back(&component);
    return parts;
  }
  const Json& list = Member(component, list_key);
  if (!list.is_array()) return Fail(Errc::kCorrupt, "{} is a Sequence without {}", what, list_key);
  for (const Json& part : list) parts.push_back(&part);
  return parts;
}

// Every part must be of this type; how many there are.
Result<int32_t> CountOnly(const Json& component, const char* list_key, std::string_view what, std::string_view type) {
  AVOCET_TRY(const auto parts, Parts(component, list_key, what));
  for (const Json* part : parts) {
    AVOCET_TRY(const std::string part_type, TypeOf(*part, what));
    if (part_type != type) return Fail(Errc::kUnsupported, "{} {} is not offered, only {}", what, Printable(part_type), type);
  }
  return static_cast<int32_t>(parts.size());
}

Result<std::string> ReadSplit(const Json& split) {
  AVOCET_TRY(const std::string behavior, Text(split, "behavior"));
  if (behavior != "Isolated") {
    return Fail(Errc::kUnsupported, "pre_tokenizer Split with behavior {} is not offered, only Isolated", Printable(behavior));
  }
  // Isolated keeps what matches and what does not, so `invert` changes nothing.
  const Json& pattern = Member(split, "pattern");
  AVOCET_TRY(std::string regex, Text(pattern, "Regex"));
  if (regex.empty()) return Fail(Errc::kUnsupported, "pre_tokenizer Split needs a pattern with a Regex");
  return regex;
}

// [Split, ByteLevel]: the pattern.
Result<std::string> ReadPreTokenizer(const Json& component) {
  constexpr std::string_view kOffered = "only Sequence[Split, ByteLevel]";
  AVOCET_TRY(const auto parts, Parts(component, "pretokenizers", "pre_tokenizer"));
  std::string shape;
  for (const Json* part : parts) {
    AVOCET_TRY(const std::string type, TypeOf(*part, "pre_tokenizer"));
    shape += shape.empty() ? type : ", " + type;
  }
  if (shape != "Split, ByteLevel") return Fail(Errc::kUnsupported, "pre_tokenizer [{}] is not offered, {}", Printable(shape), kOffered);
  AVOCET_TRY(const bool adds_space, Flag(*parts[1], "add_prefix_space", true));
  AVOCET_TRY(const bool uses_regex, Flag(*parts[1], "use_regex", true));
  if (adds_space) return Fail(Errc::kUnsupported, "pre_tokenizer ByteLevel with add_prefix_space is not offered");
  if (uses_regex) return Fail(Errc::kUnsupported, "pre_tokenizer ByteLevel with use_regex beside a Split is not offered");
  return ReadSplit(*parts[0]);
}

Result<WholePieces> ReadModel(const Json& model) {
  if (!model.is_object()) return Fail(Errc::kCorrupt, "model is {}, not an object", model.type_name());
  AVOCET_TRY(const std::string type, Text(model, "type"));
  if (!type.empty() && type != "BPE") return Fail(Errc::kUnsupported, "model type {} is not offered, only BPE", Printable(type));
  const Json& dropout = Member(model, "dropout");
  if (!dropout.is_null() && dropout != 0.0) return Fail(Errc::kUnsupported, "model with dropout is not offered");
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    AVOCET_TRY(const std::string value, Text(model, affix));
    if (!value.empty()) return Fail(Errc::kUnsupported, "model with {} {} is not offered", affix, Printable(value));
  }
  // unk_token, fuse_unk and byte_fallback concern characters without a token; with a token for every byte there are none.
  AVOCET_TRY(const bool ignores_merges, Flag(model, "ignore_merges", false));
  return ignores_merges ? WholePieces::kLookUpFirst : WholePieces::kMergeAnyway;
}

Result<AddedToken> ReadAddedToken(const Json& value, int64_t id) {
  if (!value.is_object()) return Fail(Errc::kCorrupt, "added token {} is {}, not an object", id, value.type_name());
  if (id < 0 || id >= limits::kTokenIdsMax) {
    return Fail(Errc::kCorrupt, "added token has id {}, ids from 0 to below {} are read", id, limits::kTokenIdsMax);
  }
  AddedToken token;
  token.id = static_cast<int32_t>(id);
  AVOCET_TRY(token.content, Text(value, "content"));
  if (token.content.empty() || token.content.size() > limits::kAddedTokenBytesMax) {
    return Fail(Errc::kCorrupt, "added token {} has {} bytes, 1 to {} are read", id, token.content.size(), limits::kAddedTokenBytesMax);
  }
  AVOCET_TRY(token.is_special, Flag(value, "special", false));
  AVOCET_TRY(token.is_single_word, Flag(value, "single_word", false));
  AVOCET_TRY(token.strips_left, Flag(value, "lstrip", false));
  AVOCET_TRY(token.strips_right, Flag(value, "rstrip", false));
  AVOCET_TRY(token.is_normalized, Flag(value, "normalized", !token.is_special));
  return token;
}

Result<std::vector<AddedToken>> ReadAddedTokens(const Json& list) {
  std::vector<AddedToken> tokens;
  if (list.is_null()) return tokens;
  if (!list.is_array()) return Fail(Errc::kCorrupt, "added_tokens is {}, not an array", list.type_name());
  if (list.size() > static_cast<size_t>(limits::kAddedTokensMax)) {
    return Fail(Errc::kCorrupt, "{} added tokens, at most {} are read", list.size(), limits::kAddedTokensMax);
  }
  for (const Json& value : list) {
    const Json& id = Member(value, "id");
    if (!id.is_number_integer()) return Fail(Errc::kCorrupt, "added token {} has no whole number as its id", tokens.size());
    AVOCET_TRY(AddedToken token, ReadAddedToken(value, id.get<int64_t>()));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// {"248044": {"content": ...}, ...}
Result<std::vector<AddedToken>> ReadAddedTokensDecoder(const Json& object) {
  std::vector<AddedToken> tokens;
  if (object.is_null()) return tokens;
  if (!object.is_object()) return Fail(Errc::kCorrupt, "added_tokens_decoder is {}, not an object", object.type_name());
  if (object.size() > static_cast<size_t>(limits::kAddedTokensMax)) {
    return Fail(Errc::kCorrupt, "{} added tokens, at most {} are read", object.size(), limits::kAddedTokensMax);
  }
  for (const auto& [key, value] : object.items()) {
    int64_t id = -1;
    const auto [rest, status] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (status != std::errc() || rest != key.data() + key.size()) {
      return Fail(Errc::kCorrupt, "added_tokens_decoder has the key {}, not an id", Printable(key));
    }
    AVOCET_TRY(AddedToken token, ReadAddedToken(value, id));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// A token field is a string, an object with content, or null.
Result<std::string> TokenText(const Json& value, std::string_view field) {
  const Json& content = value.is_object() ? Member(value, "content") : value;
  if (content.is_null()) return std::string();
  if (!content.is_string()) return Fail(Errc::kCorrupt, "{} is {}, not a token", field, value.type_name());
  auto text = content.get<std::string>();
  if (text.size() > limits::kAddedTokenBytesMax) {
    return Fail(Errc::kCorrupt, "{} has {} bytes, at most {} are read", field, text.size(), limits::kAddedTokenBytesMax);
  }
  return text;
}

// A string, or a list of named templates of which "default" counts.
Result<std::optional<std::string>> ReadChatTemplate(const Json& value) {
  if (value.is_null()) return std::nullopt;
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return Fail(Errc::kCorrupt, "chat_template is {}, not a string", value.type_name());
  for (const Json& named : value) {
    AVOCET_TRY(const std::string name, Text(named, "name"));
    if (name != "default") continue;
    AVOCET_TRY(std::string source, Text(named, "template"));
    return source;
  }
  return std::nullopt;
}

}  // namespace

Result<TokenizerSpec> ReadSpec(const Json& rest) {
  if (!rest.is_object()) return Fail(Errc::kCorrupt, "the file is {}, not an object", rest.type_name());
  TokenizerSpec spec;
  AVOCET_TRY(spec.whole_pieces, ReadModel(Member(rest, "model")));
  AVOCET_TRY(const int32_t num_nfc, CountOnly(Member(rest, "normalizer"), "normalizers", "normalizer", "NFC"));
  if (num_nfc > 0) spec.normalizer = Normalizer::kNfc;
  AVOCET_TRY(spec.split_pattern, ReadPreTokenizer(Member(rest, "pre_tokenizer")));
  // A ByteLevel post-processor only trims offsets, which nobody asks for.
  AVOCET_TRY_VOID(CountOnly(Member(rest, "post_processor"), "processors", "post_processor", "ByteLevel"));
  AVOCET_TRY(const int32_t num_decoders, CountOnly(Member(rest, "decoder"), "decoders", "decoder", "ByteLevel"));
  if (num_decoders != 1) return Fail(Errc::kUnsupported, "{} decoders are not offered, only one ByteLevel", num_decoders);
  AVOCET_TRY(spec.added, ReadAddedTokens(Member(rest, "added_tokens")));
  return spec;
}

Result<TokenizerConfig> ReadTokenizerConfig(std::string_view json) {
  AVOCET_TRY(const TokenizerFile file, ReadTokenizerFile(json));  // for its limits; there is no vocabulary in this one
  const Json& object = file.rest;
  if (!object.is_object()) return Fail(Errc::kCorrupt, "the file is {}, not an object", object.type_name());
  TokenizerConfig config;
  AVOCET_TRY(config.added, ReadAddedTokensDecoder(Member(object, "added_tokens_decoder")));
  struct Field {
    const char* name;
    std::string* text;
  };
  std::string unk_token;
  const std::array<Field, 4> fields{
      {{"eos_token", &config.eos_token}, {"pad_token", &config.pad_token}, {"bos_token", &config.bos_token}, {"unk_token", &unk_token}}};
  for (const Field& field : fields) {
    AVOCET_TRY(*field.text, TokenText(Member(object, field.name), field.name));
    if (!field.text->empty()) config.named_specials.push_back(*field.text);
  }
  for (const char* field : {"extra_special_tokens", "additional_special_tokens"}) {
    for (const Json& value : Member(object, field)) {  // a list, an object of named ones, or null
      AVOCET_TRY(std::string text, TokenText(value, field));
      if (!text.empty()) config.named_specials.push_back(std::move(text));
    }
  }
  AVOCET_TRY(config.chat_template, ReadChatTemplate(Member(object, "chat_template")));
  return config;
}

}  // namespace avocet::tokenizer
