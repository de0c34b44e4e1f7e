#include "tokenizer/tokenizer_file.h"

#include <optional>
#include <utility>

#include "base/limits.h"
#include "base/printable.h"

namespace avocet::tokenizer {

namespace {

using Json = nlohmann::json;

// Receives the parser's events (the names are nlohmann's). Returning false stops the parser; error_ says why.
class Reader {
 public:
  using number_integer_t = Json::number_integer_t;
  using number_unsigned_t = Json::number_unsigned_t;
  using number_float_t = Json::number_float_t;
  using string_t = Json::string_t;
  using binary_t = Json::binary_t;

  explicit Reader(size_t file_bytes) {
    // Published files are two thirds vocabulary and merges by letters.
    file_.text.reserve(file_bytes / 2);
  }

  TokenizerFile Take() { return std::move(file_); }
  Error TakeError() { return std::move(*error_); }

  bool null() { return Value(nullptr); }
  bool boolean(bool value) { return Value(value); }
  bool number_integer(number_integer_t value) { return Value(value); }
  bool number_float(number_float_t value, const string_t&) { return Value(value); }
  bool binary(binary_t&) { return Refuse("binary data"); }

  bool number_unsigned(number_unsigned_t value) {
    if (place_ != Place::kVocab) return Value(value);
    if (value >= static_cast<number_unsigned_t>(limits::kTokenIdsMax)) {
      return Refuse(fmt::format("token {} has id {}, ids below {} are read", Printable(key_), value, limits::kTokenIdsMax));
    }
    if (file_.vocab.size() >= static_cast<size_t>(limits::kTokenIdsMax)) return Refuse("more vocabulary entries than ids");
    file_.vocab.push_back({Offset(), static_cast<uint32_t>(key_.size()), static_cast<int32_t>(value)});
    file_.text += key_;
    return true;
  }

  bool string(string_t& value) {
    switch (place_) {
      case Place::kVocab: return Refuse(fmt::format("token {} has a string as its id", Printable(key_)));
      case Place::kMerges: return AddMergeLine(value);
      case Place::kMergePair: return AddMergeHalf(value);
      case Place::kRest: return Value(value);
    }
    return false;
  }

  bool key(string_t& value) {
    key_ = value;
    return true;
  }

  bool start_object(size_t) {
    if (place_ != Place::kRest) return Refuse("an object inside model.vocab or model.merges");
    if (InModel() && key_ == "vocab") {
      place_ = Place::kVocab;
      return true;
    }
    return Open(Json::object());
  }

  bool end_object() {
    if (place_ == Place::kVocab) {
      place_ = Place::kRest;
    } else {
      open_.pop_back();
    }
    return true;
  }

  bool start_array(size_t) {
    switch (place_) {
      case Place::kVocab: return Refuse(fmt::format("token {} has an array as its id", Printable(key_)));
      case Place::kMergePair: return Refuse("an array inside a merge");
      case Place::kMerges:
        place_ = Place::kMergePair;
        num_halves_ = 0;
        return true;
      case Place::kRest: break;
    }
    if (InModel() && key_ == "merges") {
      place_ = Place::kMerges;
      return true;
    }
    return Open(Json::array());
  }

  bool end_array() {
    switch (place_) {
      case Place::kMergePair:
        if (num_halves_ != 2) return Refuse(fmt::format("a merge near number {} has {} parts, not 2", file_.merges.size(), num_halves_));
        place_ = Place::kMerges;
        return true;
      case Place::kMerges: place_ = Place::kRest; return true;
      case Place::kVocab:
      case Place::kRest: open_.pop_back(); return true;
    }
    return false;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) {
    return Refuse(fmt::format("not valid JSON near byte {}", position));
  }

 private:
  enum class Place { kRest, kVocab, kMerges, kMergePair };

  uint32_t Offset() const { return static_cast<uint32_t>(file_.text.size()); }

  bool Refuse(std::string message) {
    error_ = Error{Errc::kCorrupt, std::move(message), {}};
    return false;
  }

  // Inside the object "model" of the file's object.
  bool InModel() const { return open_.size() == 2 && in_model_; }

  template <typename T>
  bool Value(T&& value) {
    if (place_ == Place::kVocab) return Refuse(fmt::format("token {} has an id that is no whole number", Printable(key_)));
    if (place_ != Place::kRest) return Refuse("a merge that is no string");
    return Insert(std::forward<T>(value)) != nullptr;
  }

  // The inserted value, or nullptr after a refusal.
  template <typename T>
  Json* Insert(T&& value) {
    if (++num_values_ > limits::kTokenizerValuesMax) {
      Refuse(fmt::format("more than {} values beside vocabulary and merges", limits::kTokenizerValuesMax));
      return nullptr;
    }
    if (open_.empty()) {
      file_.rest = std::forward<T>(value);
      return &file_.rest;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) return &parent.emplace_back(std::forward<T>(value));
    if (open_.size() == 1) in_model_ = key_ == "model";
    return &(parent[key_] = std::forward<T>(value));
  }

  bool Open(Json container) {
    if (open_.size() >= static_cast<size_t>(limits::kJsonDepthMax)) {
      return Refuse(fmt::format("nested deeper than {}", limits::kJsonDepthMax));
    }
    Json* inserted = Insert(std::move(container));
    if (inserted == nullptr) return false;
    open_.push_back(inserted);
    return true;
  }

  bool StartMerge(uint32_t left_bytes, uint32_t right_bytes) {
    if (file_.merges.size() >= static_cast<size_t>(limits::kMergesMax)) {
      return Refuse(fmt::format("more than {} merges", limits::kMergesMax));
    }
    file_.merges.push_back({Offset(), left_bytes, right_bytes});
    return true;
  }

  // "left right"
  bool AddMergeLine(std::string_view line) {
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
      return Refuse(fmt::format("merge {} is not two tokens with a space between: {}", file_.merges.size(), Printable(line)));
    }
    if (!StartMerge(static_cast<uint32_t>(space), static_cast<uint32_t>(line.size() - space - 1))) return false;
    file_.text += line.substr(0, space);
    file_.text += line.substr(space + 1);
    return true;
  }

  // ["left", "right"], one at a time
  bool AddMergeHalf(std::string_view half) {
    const auto num_bytes = static_cast<uint32_t>(half.size());
    ++num_halves_;
    if (num_halves_ == 1 && !StartMerge(num_bytes, 0)) return false;
    if (num_halves_ == 2) file_.merges.back().right_bytes = num_bytes;
    file_.text += half;
    return true;
  }

  TokenizerFile file_;
  std::optional<Error> error_;
  Place place_ = Place::kRest;
  std::string key_;          // the latest one
  std::vector<Json*> open_;  // containers of file_.rest around the current place
  bool in_model_ = false;    // open_[1], if there, is the model
  int32_t num_halves_ = 0;   // of the current merge pair
  int32_t num_values_ = 0;
};

}  // namespace

Result<TokenizerFile> ReadTokenizerFile(std::string_view json) {
  if (json.size() > limits::kTokenizerBytesMax) {
    return Fail(Errc::kCorrupt, "{} bytes, at most {} are read", json.size(), limits::kTokenizerBytesMax);
  }
  Reader reader(json.size());
  if (!Json::sax_parse(json.begin(), json.end(), &reader)) return std::unexpected(reader.TakeError());
  return reader.Take();
}

}  // namespace avocet::tokenizer
