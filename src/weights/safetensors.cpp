#include "weights/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/limits.h"
#include "base/printable.h"

namespace avocet::weights {
namespace {

static_assert(std::endian::native == std::endian::little, "headers and tensors are little endian");

struct DTypeRow {
  DType dtype;
  std::string_view name;
  size_t num_bytes;
};
constexpr std::array kDTypes = {
    DTypeRow{DType::kBf16, "BF16", 2},      DTypeRow{DType::kF16, "F16", 2},        DTypeRow{DType::kF32, "F32", 4},
    DTypeRow{DType::kF64, "F64", 8},        DTypeRow{DType::kF8E4M3, "F8_E4M3", 1}, DTypeRow{DType::kF8E5M2, "F8_E5M2", 1},
    DTypeRow{DType::kI8, "I8", 1},          DTypeRow{DType::kU8, "U8", 1},          DTypeRow{DType::kI16, "I16", 2},
    DTypeRow{DType::kI32, "I32", 4},        DTypeRow{DType::kI64, "I64", 8},        DTypeRow{DType::kBool, "BOOL", 1},
    DTypeRow{DType::kU16, "U16", 2},        DTypeRow{DType::kU32, "U32", 4},        DTypeRow{DType::kU64, "U64", 8},
    DTypeRow{DType::kF8E8M0, "F8_E8M0", 1},
};
constexpr const DTypeRow& RowOf(DType dtype) {
  return kDTypes[static_cast<size_t>(dtype)];
}
static_assert(
    [] {
      for (size_t i = 0; i < kDTypes.size(); ++i) {
        if (static_cast<size_t>(kDTypes[i].dtype) != i) return false;
      }
      return true;
    }(),
    "in the order of the enum");

std::optional<DType> DTypeFromName(std::string_view name) {
  for (const DTypeRow& row : kDTypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

// What both parsers share. Values arrive one by one, so a hostile text never becomes a tree; the depth is bounded; the first thing wrong
// ends the parse with one message. Fields the format does not name are skipped, whatever they hold.
class SaxBase : public nlohmann::json_sax<nlohmann::json> {
 public:
  SaxBase(std::string_view file, std::string_view part) : file_(file), part_(part) {}
  Error TakeError() { return std::move(error_); }

  bool start_object(size_t) final { return Open("an object"); }
  bool end_object() final { return Close() || OnClose(); }
  bool start_array(size_t) final { return Open("an array"); }
  bool end_array() final { return Close() || true; }
  bool key(string_t& name) final { return skip_from_ != 0 || OnKey(name); }
  bool string(string_t& value) final { return IsIgnored() || OnString(value); }
  bool number_unsigned(number_unsigned_t value) final { return IsIgnored() || OnUnsigned(value); }
  bool null() final { return IsIgnored() || Unexpected("null"); }
  bool boolean(bool) final { return IsIgnored() || Unexpected("a boolean"); }
  bool number_integer(number_integer_t) final { return IsIgnored() || Unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) final { return IsIgnored() || Unexpected("a fraction or too large a number"); }
  bool binary(binary_t&) final { return Unexpected("bytes"); }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) final {
    return Refuse("the {} is not JSON at its byte {}", part_, position);
  }

 protected:
  enum class Kind : uint8_t { kWanted, kUnwanted, kSkip };

  template <typename... Args>
  bool Refuse(fmt::format_string<Args...> format, Args&&... args) {
    error_.message = fmt::format("{}: {}", file_, fmt::format(format, std::forward<Args>(args)...));
    return false;
  }
  int32_t depth() const { return depth_; }

  // An object or array opened; depth() counts it.
  virtual Kind OnOpen(std::string_view kind) = 0;
  // A wanted object closed; depth() no longer counts it.
  virtual bool OnClose() = 0;
  virtual bool OnKey(string_t& name) = 0;
  virtual bool OnString(string_t& value) = 0;
  virtual bool OnUnsigned(uint64_t value) = 0;
  // A value that the last key makes irrelevant.
  virtual bool IsUnknownField() const = 0;
  virtual bool Unexpected(std::string_view kind) = 0;

 private:
  bool IsIgnored() const { return skip_from_ != 0 || IsUnknownField(); }

  bool Open(std::string_view kind) {
    if (++depth_ > limits::kJsonDepthMax) return Refuse("the {} nests deeper than {} levels", part_, limits::kJsonDepthMax);
    if (skip_from_ != 0) return true;
    switch (OnOpen(kind)) {
      case Kind::kWanted: return true;
      case Kind::kUnwanted: return Unexpected(kind);
      case Kind::kSkip: skip_from_ = depth_; return true;
    }
    return true;
  }

  // True when what closed was skipped.
  bool Close() {
    --depth_;
    if (skip_from_ == 0) return false;
    if (depth_ < skip_from_) skip_from_ = 0;
    return true;
  }

  std::string_view file_;
  std::string_view part_;  // of the file: "header" or "index"
  Error error_{Errc::kCorrupt, {}, {}};
  int32_t depth_ = 0;
  int32_t skip_from_ = 0;  // depth of the outermost skipped object or array; 0: none
};

bool IsCleanName(std::string_view name) {
  return !name.empty() && name.size() <= limits::kTensorNameBytesMax &&
         std::ranges::none_of(name, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

// {"__metadata__": {...}, "name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, ...}; offsets stay relative to the data.
//  depth 1                 depth 2                   depth 3
class HeaderSax final : public SaxBase {
 public:
  explicit HeaderSax(std::string_view file) : SaxBase(file, "header") {}
  std::vector<TensorEntry> TakeTensors() { return std::move(tensors_); }

 private:
  enum class Field : uint8_t { kUnknown, kDtype, kShape, kOffsets };

  Kind OnOpen(std::string_view kind) override {
    const bool is_object = kind == "an object";
    if (depth() == 1) return is_object ? Kind::kWanted : Kind::kUnwanted;
    if (is_metadata_) return Kind::kSkip;
    if (depth() == 2) return is_object ? Kind::kWanted : Kind::kUnwanted;
    if (depth() == 3 && field_ == Field::kUnknown) return Kind::kSkip;
    if (depth() != 3 || is_object) return Kind::kUnwanted;
    if (field_ == Field::kShape && !has_shape_) {
      has_shape_ = true;
      return Kind::kWanted;
    }
    return field_ == Field::kOffsets && num_offsets_ == 0 ? Kind::kWanted : Kind::kUnwanted;
  }

  bool OnKey(string_t& name) override {
    if (depth() == 1) return StartTensor(name);
    field_ = name == "dtype" ? Field::kDtype : name == "shape" ? Field::kShape : name == "data_offsets" ? Field::kOffsets : Field::kUnknown;
    return true;
  }

  bool OnString(string_t& value) override {
    if (depth() != 2 || field_ != Field::kDtype) return Unexpected("a string");
    const std::optional<DType> dtype = DTypeFromName(value);
    if (!dtype) return Refuse("tensor {} has the unknown dtype \"{}\"", tensors_.back().name, Printable(value));
    tensors_.back().dtype = *dtype;
    has_dtype_ = true;
    return true;
  }

  bool OnUnsigned(uint64_t value) override {
    if (depth() != 3) return Unexpected("a number");
    TensorEntry& tensor = tensors_.back();
    if (field_ == Field::kShape) {
      if (tensor.shape.size() == static_cast<size_t>(limits::kTensorRankMax)) {
        return Refuse("tensor {} has more than {} dimensions", tensor.name, limits::kTensorRankMax);
      }
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return Refuse("tensor {} has a dimension of {}", tensor.name, value);
      }
      tensor.shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (num_offsets_ == 2) return Refuse("tensor {} has more than two data_offsets", tensor.name);
    (num_offsets_ == 0 ? tensor.begin : tensor.end) = value;
    ++num_offsets_;
    return true;
  }

  bool IsUnknownField() const override { return depth() == 2 && !is_metadata_ && field_ == Field::kUnknown; }

  bool Unexpected(std::string_view kind) override {
    if (is_metadata_) return Refuse("__metadata__ holds {} where an object is wanted", kind);
    if (depth() <= 1 && tensors_.empty()) return Refuse("the header holds {} where the table of tensors is wanted", kind);
    return Refuse("tensor {} holds {} where its dtype, shape or data_offsets is wanted", tensors_.back().name, kind);
  }

  bool StartTensor(string_t& name) {
    is_metadata_ = name == "__metadata__";
    if (is_metadata_) return true;
    if (!IsCleanName(name)) return Refuse("tensor name \"{}\" is empty, too long or not printable", Printable(name));
    if (tensors_.size() == limits::kTensorsMax) return Refuse("the header lists more than {} tensors", limits::kTensorsMax);
    tensors_.push_back({std::move(name), DType::kBf16, {}, 0, 0});
    field_ = Field::kUnknown;
    has_dtype_ = has_shape_ = false;
    num_offsets_ = 0;
    return true;
  }

  bool OnClose() override {
    if (depth() != 1) return true;
    if (has_dtype_ && has_shape_ && num_offsets_ == 2) return true;
    return Refuse("tensor {} lacks its {}", tensors_.back().name, !has_dtype_ ? "dtype" : !has_shape_ ? "shape" : "two data_offsets");
  }

  std::vector<TensorEntry> tensors_;
  Field field_ = Field::kUnknown;
  bool is_metadata_ = false;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  int32_t num_offsets_ = 0;
};

// {"metadata": {...}, "weight_map": {"name": "model-00001-of-00002.safetensors", ...}}
class IndexSax final : public SaxBase {
 public:
  explicit IndexSax(std::string_view file) : SaxBase(file, "index") {}
  SafetensorsIndex TakeIndex() { return std::move(index_); }
  bool has_map() const { return has_map_; }

 private:
  Kind OnOpen(std::string_view kind) override {
    if (depth() == 1) return kind == "an object" ? Kind::kWanted : Kind::kUnwanted;
    if (!in_map_) return Kind::kSkip;
    if (depth() != 2 || kind != "an object") return Kind::kUnwanted;
    has_map_ = true;
    return Kind::kWanted;
  }

  bool OnKey(string_t& name) override {
    if (depth() == 1) {
      in_map_ = name == "weight_map";
      return true;
    }
    if (!IsCleanName(name)) return Refuse("tensor name \"{}\" is empty, too long or not printable", Printable(name));
    if (index_.entries.size() == limits::kTensorsMax) return Refuse("the index lists more than {} tensors", limits::kTensorsMax);
    index_.entries.push_back({std::move(name), -1});
    return true;
  }

  bool OnString(string_t& value) override {
    if (depth() != 2) return Unexpected("a string");
    const auto [it, is_new] = file_ids_.try_emplace(value, static_cast<int32_t>(index_.files.size()));
    if (is_new) {
      if (index_.files.size() == limits::kShardsMax) return Refuse("the index names more than {} files", limits::kShardsMax);
      index_.files.push_back(value);
    }
    index_.entries.back().file = it->second;
    return true;
  }

  bool OnUnsigned(uint64_t) override { return Unexpected("a number"); }
  bool OnClose() override { return true; }
  bool IsUnknownField() const override { return depth() == 1 && !in_map_; }

  bool Unexpected(std::string_view kind) override {
    if (index_.entries.empty()) return Refuse("holds {} where the weight_map is wanted", kind);
    return Refuse("weight_map holds {} where the file of tensor {} is wanted", kind, index_.entries.back().tensor);
  }

  SafetensorsIndex index_;
  std::unordered_map<std::string, int32_t> file_ids_;
  bool in_map_ = false;
  bool has_map_ = false;
};

Result<void> ParseJson(std::string_view json, SaxBase& sax) {
  // The library throws only when it is out of memory; everything else arrives in parse_error.
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &sax)) return std::unexpected(sax.TakeError());
  return {};
}

// Product of the dimensions times the element size, or nothing when it does not fit.
std::optional<uint64_t> ShapeBytes(const TensorEntry& tensor) {
  uint64_t num_bytes = DTypeBytes(tensor.dtype);
  for (const int64_t dim : tensor.shape) {
    if (__builtin_mul_overflow(num_bytes, static_cast<uint64_t>(dim), &num_bytes)) return std::nullopt;
  }
  return num_bytes;
}

// Sorts by position; afterwards the tensors fill the data section without holes, and each has the bytes its shape asks for.
Result<void> CheckRanges(std::string_view file, uint64_t data_bytes, std::vector<TensorEntry>& tensors) {
  for (const TensorEntry& tensor : tensors) {
    if (tensor.begin > tensor.end || tensor.end > data_bytes) {
      return Fail(Errc::kCorrupt, "{}: tensor {} lies at bytes {}..{} of the data, which has {} (incomplete download?)", file, tensor.name,
                  tensor.begin, tensor.end, data_bytes);
    }
    const std::optional<uint64_t> wanted = ShapeBytes(tensor);
    if (!wanted || *wanted != tensor.end - tensor.begin) {
      return Fail(Errc::kCorrupt, "{}: tensor {} has {} bytes, its shape {} {} asks for {}", file, tensor.name, tensor.end - tensor.begin,
                  DTypeName(tensor.dtype), ShapeText(tensor.shape), wanted ? std::to_string(*wanted) : "more than 2^64");
    }
  }
  std::ranges::sort(tensors, {}, [](const TensorEntry& t) { return std::pair(t.begin, t.end); });
  uint64_t filled = 0;
  const TensorEntry* previous = nullptr;
  for (const TensorEntry& tensor : tensors) {
    if (tensor.begin < filled) {
      return Fail(Errc::kCorrupt, "{}: tensors {} and {} overlap at byte {} of the data", file, previous->name, tensor.name, tensor.begin);
    }
    if (tensor.begin > filled) {
      return Fail(Errc::kCorrupt, "{}: bytes {}..{} of the data, before tensor {}, belong to no tensor", file, filled, tensor.begin,
                  tensor.name);
    }
    filled = tensor.end;
    previous = &tensor;
  }
  if (filled != data_bytes) {
    return Fail(Errc::kCorrupt, "{}: the last {} bytes of the file belong to no tensor", file, data_bytes - filled);
  }
  return {};
}

}  // namespace

std::string_view DTypeName(DType dtype) {
  return RowOf(dtype).name;
}
size_t DTypeBytes(DType dtype) {
  return RowOf(dtype).num_bytes;
}

std::string ShapeText(std::span<const int64_t> shape) {
  std::string text = "[";
  for (const int64_t dim : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(dim);
  return text + "]";
}

Result<std::vector<TensorEntry>> ParseSafetensors(std::string_view file, std::span<const std::byte> bytes) {
  uint64_t header_bytes = 0;
  if (bytes.size() < sizeof(header_bytes)) {
    return Fail(Errc::kCorrupt, "{} has {} bytes: not a safetensors file (incomplete download?)", file, bytes.size());
  }
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  if (header_bytes > limits::kSafetensorsHeaderBytesMax) {
    return Fail(Errc::kCorrupt, "{}: the header has {} bytes, the format allows {}", file, header_bytes,
                limits::kSafetensorsHeaderBytesMax);
  }
  if (header_bytes > bytes.size() - sizeof(header_bytes)) {
    return Fail(Errc::kCorrupt, "{}: the header has {} bytes, the file {} (incomplete download?)", file, header_bytes, bytes.size());
  }
  const uint64_t data_begin = sizeof(header_bytes) + header_bytes;

  HeaderSax sax(file);
  AVOCET_TRY_VOID(ParseJson({reinterpret_cast<const char*>(bytes.data()) + sizeof(header_bytes), header_bytes}, sax));
  std::vector<TensorEntry> tensors = sax.TakeTensors();
  AVOCET_TRY_VOID(CheckRanges(file, bytes.size() - data_begin, tensors));
  for (TensorEntry& tensor : tensors) {
    tensor.begin += data_begin;
    tensor.end += data_begin;
  }
  return tensors;
}

Result<SafetensorsIndex> ParseSafetensorsIndex(std::string_view file, std::string_view json) {
  IndexSax sax(file);
  AVOCET_TRY_VOID(ParseJson(json, sax));
  if (!sax.has_map()) return Fail(Errc::kCorrupt, "{} has no weight_map", file);
  return sax.TakeIndex();
}

}  // namespace avocet::weights
