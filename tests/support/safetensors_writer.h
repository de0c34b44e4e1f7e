// Writes small safetensors files and model folders for tests, right ones and wrong ones. Shares no code with the reader under test.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/bf16.h"

namespace avocet::test {

// A folder that disappears with the object.
class TempDir {
 public:
  TempDir() {
    static std::atomic<int> counter = 0;
    path_ = std::filesystem::temp_directory_path() / ("avocet_test_" + std::to_string(getpid()) + "_" + std::to_string(counter++));
    std::filesystem::create_directories(path_);
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  std::string path() const { return path_.string(); }
  std::string File(const std::string& name) const { return (path_ / name).string(); }
  void Write(const std::string& name, const std::string& bytes) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << bytes;
  }

 private:
  std::filesystem::path path_;
};

struct TensorData {
  std::string name;
  std::string dtype;  // as in the file: "BF16"
  std::vector<int64_t> shape;
  std::string bytes;
};

inline std::string Bf16Bytes(const std::vector<float>& values) {
  std::string bytes(values.size() * 2, '\0');
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t bits = ToBf16(values[i]).bits;
    std::memcpy(bytes.data() + 2 * i, &bits, 2);
  }
  return bytes;
}

inline std::string F32Bytes(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

// Exact for the values that binary16 holds as normal numbers; tests use such.
inline std::string F16Bytes(const std::vector<float>& values) {
  std::string bytes(values.size() * 2, '\0');
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t wide = 0;
    std::memcpy(&wide, &values[i], 4);
    const uint32_t magnitude = wide & 0x7fffffffu;
    const auto bits = static_cast<uint16_t>((wide >> 16 & 0x8000u) | (magnitude == 0 ? 0 : (magnitude - (112u << 23)) >> 13));
    std::memcpy(bytes.data() + 2 * i, &bits, 2);
  }
  return bytes;
}

// length, header, data. The header is taken as it is.
inline std::string SafetensorsFile(const std::string& header, const std::string& data) {
  const uint64_t header_bytes = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &header_bytes, 8);
  return file + header + data;
}

inline std::string ShapeJson(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ",") + std::to_string(shape[i]);
  return text + "]";
}

inline std::string SafetensorsFile(const std::vector<TensorData>& tensors) {
  std::string header = "{\"__metadata__\":{\"format\":\"pt\"}";
  std::string data;
  for (const TensorData& tensor : tensors) {
    header += ",\"" + tensor.name + "\":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":" + ShapeJson(tensor.shape) + ",\"data_offsets\":[" +
              std::to_string(data.size()) + "," + std::to_string(data.size() + tensor.bytes.size()) + "]}";
    data += tensor.bytes;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return SafetensorsFile(header, data);
}

// model.safetensors.index.json: tensor -> file.
inline std::string IndexFile(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string json = "{\"metadata\":{\"total_size\":0},\"weight_map\":{";
  for (size_t i = 0; i < entries.size(); ++i) json += (i == 0 ? "\"" : ",\"") + entries[i].first + "\":\"" + entries[i].second + "\"";
  return json + "}}";
}

}  // namespace avocet::test
