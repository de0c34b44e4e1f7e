// The two headers of the safetensors format, parsed from memory and checked: a file's table of tensors, and the index of a sharded
// checkpoint. Nothing here touches tensor data or allocates more than a small multiple of the header.
// Source of the format: huggingface/safetensors README ("Format"); like the reference reader, holes between tensors are refused.
//
//   | u64 header bytes, little endian | JSON header, padded with spaces | data: tensors one after the other, no holes |
//                                                                       ^ data_offsets count from here
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace avocet::weights {

enum class DType : uint8_t { kBf16, kF16, kF32, kF64, kF8E4M3, kF8E5M2, kI8, kU8, kI16, kI32, kI64, kBool, kU16, kU32, kU64, kF8E8M0 };
std::string_view DTypeName(DType dtype);  // "BF16", ... as in the file
size_t DTypeBytes(DType dtype);

struct TensorEntry {
  std::string name;
  DType dtype = DType::kBf16;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // bytes from the start of the file
  uint64_t end = 0;
};

// `file` is the name for messages, `bytes` the whole file. In the order of the data.
Result<std::vector<TensorEntry>> ParseSafetensors(std::string_view file, std::span<const std::byte> bytes);

struct IndexEntry {
  std::string tensor;
  int32_t file = 0;  // index into SafetensorsIndex::files
};

struct SafetensorsIndex {
  std::vector<std::string> files;  // as written: hostile until resolved (ModelFolder)
  std::vector<IndexEntry> entries;
};

// model.safetensors.index.json: weight_map names the file of every tensor.
Result<SafetensorsIndex> ParseSafetensorsIndex(std::string_view file, std::string_view json);

std::string ShapeText(std::span<const int64_t> shape);  // "[1024, 64]"

}  // namespace avocet::weights
