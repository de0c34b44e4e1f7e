// Safetensors headers and indexes from memory: whatever the bytes, a table that is within the file or one line of refusal.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "weights/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace avocet::weights;
  const auto bytes = std::as_bytes(std::span(data, size));
  if (const auto tensors = ParseSafetensors("fuzz", bytes)) {
    uint64_t end = 0;
    for (const TensorEntry& tensor : *tensors) {
      if (tensor.begin > tensor.end || tensor.end > size) std::abort();
      if (tensor.begin < end) std::abort();
      uint64_t wanted = DTypeBytes(tensor.dtype);
      for (const int64_t dim : tensor.shape) wanted *= static_cast<uint64_t>(dim);
      if (wanted != tensor.end - tensor.begin) std::abort();
      end = tensor.end;
    }
  } else if (tensors.error().message.find('\n') != std::string::npos) {
    std::abort();
  }
  const auto index = ParseSafetensorsIndex("fuzz", {reinterpret_cast<const char*>(data), size});
  if (index) {
    for (const IndexEntry& entry : index->entries) {
      if (entry.file < 0 || static_cast<size_t>(entry.file) >= index->files.size()) std::abort();
    }
  }
  return 0;
}
