#include "server/json_input.h"

#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "base/printable.h"

namespace avocet::server {

namespace {

constexpr size_t kPreviewBytesMax = 200;  // serving.md 2.5

// Keeps the last value of each key at the place of its first, as Python does. Objects are lists of pairs and the ordinary insertion
// searches them, which an object of a million keys would make quadratic.
void DropDuplicateKeys(Json::object_t& object) {
  std::unordered_map<std::string_view, size_t> first_of;
  first_of.reserve(object.size());
  std::vector<bool> is_dropped(object.size());
  bool has_duplicates = false;
  const std::span<Json::object_t::value_type> members(object.data(), object.size());
  for (size_t i = 0; i < members.size(); ++i) {
    const auto [place, is_new] = first_of.emplace(members[i].first, i);
    if (is_new) continue;
    members[place->second].second = std::move(members[i].second);
    is_dropped[i] = true;
    has_duplicates = true;
  }
  if (!has_duplicates) return;
  Json::object_t kept;
  for (size_t i = 0; i < members.size(); ++i) {
    if (!is_dropped[i]) kept.emplace_back(members[i].first, std::move(members[i].second));
  }
  object = std::move(kept);
}

// Builds the value as the parser reports it and stops it at the limits.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(Json& root) : root_(root) {}

  bool null() override { return Add(nullptr) != nullptr; }
  bool boolean(bool value) override { return Add(value) != nullptr; }
  bool number_integer(number_integer_t value) override { return Add(value) != nullptr; }
  bool number_unsigned(number_unsigned_t value) override { return Add(value) != nullptr; }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return Add(value) != nullptr; }
  bool string(string_t& value) override { return Add(std::move(value)) != nullptr; }
  bool binary(binary_t& /*value*/) override { return false; }
  bool start_object(size_t /*elements*/) override { return Open(Json::object()); }
  bool start_array(size_t /*elements*/) override { return Open(Json::array()); }
  bool key(string_t& value) override {
    key_ = std::move(value);
    return true;
  }
  bool end_object() override {
    DropDuplicateKeys(open_.back()->get_ref<Json::object_t&>());
    open_.pop_back();
    return true;
  }
  bool end_array() override {
    open_.pop_back();
    return true;
  }
  bool parse_error(size_t /*position*/, const std::string& /*last_token*/, const nlohmann::detail::exception& error) override {
    reason_ = error.what();
    if (const size_t end = reason_.find("] "); end != std::string::npos) reason_.erase(0, end + 2);
    return false;
  }

  const std::string& reason() const { return reason_; }

 private:
  template <typename T>
  Json* Add(T&& value) {
    if (++num_values_ > limits::kJsonValuesMax) {
      reason_ = fmt::format("more than {} values", limits::kJsonValuesMax);
      return nullptr;
    }
    if (open_.empty()) {
      root_ = Json(std::forward<T>(value));
      return &root_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      auto& list = parent.get_ref<Json::array_t&>();
      list.emplace_back(std::forward<T>(value));
      return &list.back();
    }
    auto& object = parent.get_ref<Json::object_t&>();
    object.emplace_back(std::move(key_), std::forward<T>(value));
    return &object.back().second;
  }

  bool Open(Json container) {
    if (open_.size() >= static_cast<size_t>(limits::kJsonDepthMax)) {
      reason_ = fmt::format("nested deeper than {} levels", limits::kJsonDepthMax);
      return false;
    }
    Json* added = Add(std::move(container));
    if (added == nullptr) return false;
    open_.push_back(added);
    return true;
  }

  Json& root_;
  std::vector<Json*> open_;  // the path from the root to the container being filled
  std::string key_;
  std::string reason_;
  size_t num_values_ = 0;
};

}  // namespace

Result<Json> ParseJson(std::string_view bytes, std::string_view what) {
  Json value;
  Builder builder(value);
  if (!Json::sax_parse(bytes.begin(), bytes.end(), &builder)) {
    return Fail(Errc::kInvalidArgument, "{} is not acceptable JSON: {}", what, Printable(builder.reason(), kPreviewBytesMax));
  }
  return value;
}

std::string DumpJson(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string Preview(const Json& value) {
  switch (value.type()) {
    case Json::value_t::string: return '"' + Printable(value.get_ref<const std::string&>(), kPreviewBytesMax) + '"';
    case Json::value_t::array: return fmt::format("a list of {}", value.size());
    case Json::value_t::object: return fmt::format("an object with {} keys", value.size());
    default: return value.dump();
  }
}

}  // namespace avocet::server
