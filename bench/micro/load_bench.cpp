// Loading from the page cache: files to packed panels, against a plain copy of the same bytes by the same workers, from a fresh mapping
// into a fresh arena, in one run and interleaved. Also opening and matching many tensors, and filling dummy weights. JSON lines.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "device/arena.h"
#include "device/worker_pool.h"
#include "model/model_weights.h"
#include "weights/loader.h"
#include "weights/mapped_file.h"

namespace {

using namespace avocet;

constexpr int kRounds = 7;
constexpr int32_t kMatrices = 32;
constexpr int32_t kRows = 4096;
constexpr int32_t kCols = 2048;
constexpr size_t kMatrixBytes = size_t{kRows} * kCols * 2;
constexpr size_t kTotalBytes = kMatrices * kMatrixBytes;

double SecondsOf(FunctionRef<void()> fn) {
  const auto start = std::chrono::steady_clock::now();
  fn();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The pages of the file are in the page cache after this.
void WriteCheckpoint(const std::string& path) {
  std::string header = "{";
  for (int32_t i = 0; i < kMatrices; ++i) {
    header += fmt::format("{}\"w{}\":{{\"dtype\":\"BF16\",\"shape\":[{},{}],\"data_offsets\":[{},{}]}}", i == 0 ? "" : ",", i, kRows, kCols,
                          static_cast<size_t>(i) * kMatrixBytes, static_cast<size_t>(i + 1) * kMatrixBytes);
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t header_bytes = header.size();
  std::string data(kMatrixBytes, '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 2654435761u >> 13);
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&header_bytes), 8);
  file << header;
  for (int32_t i = 0; i < kMatrices; ++i) file << data;
  CHECK(file.good(), "cannot write {}", path);
}

double LoadOnce(const std::string& dir, device::WorkerPool& pool) {
  const auto checkpoint = weights::Checkpoint::Open(dir);
  CHECK(checkpoint.has_value(), "{}", checkpoint.error().message);
  weights::Loader loader(*checkpoint, weights::WeightPolicy::kExact);
  std::vector<ops::PackedWeight> packed(kMatrices);
  for (int32_t i = 0; i < kMatrices; ++i) {
    const auto added =
        loader.AddMatrix({kCols, weights::RowOrder::kConcat, {{fmt::format("w{}", i), 0, kRows}}}, &packed[static_cast<size_t>(i)]);
    CHECK(added.has_value(), "{}", added.error().message);
  }
  const auto arena = loader.Load(pool, {});
  CHECK(arena.has_value(), "{}", arena.error().message);
  return loader.stats().seconds;
}

double CopyOnce(const std::string& path, device::WorkerPool& pool) {
  const auto file = weights::MappedFile::Open(path);
  const std::span<const std::byte> source = file->bytes().last(kTotalBytes);
  auto arena = device::Arena::Create("copy", kTotalBytes).value();
  std::byte* dst = arena.Allocate(kTotalBytes);
  constexpr size_t kChunk = size_t{4} << 20;
  return SecondsOf([&] {
    std::atomic<size_t> next = 0;
    pool.Run([&](device::Worker&) {
      for (size_t at = next.fetch_add(kChunk); at < kTotalBytes; at = next.fetch_add(kChunk)) {
        std::memcpy(dst + at, source.data() + at, std::min(kChunk, kTotalBytes - at));
      }
    });
  });
}

model::ModelConfig SmallestPublished() {
  model::ModelConfig config;  // 0.8B (model.md 1.4)
  config.hidden = 1024;
  config.num_layers = 24;
  for (int i = 0; i < config.num_layers; ++i)
    config.layers.push_back(i % 4 == 3 ? model::LayerKind::kAttention : model::LayerKind::kDeltaNet);
  config.vocab_rows = 248320;
  config.tied_head = true;
  config.num_heads = 8;
  config.num_kv_heads = 2;
  config.head_dim = 256;
  config.linear_key_heads = 16;
  config.linear_value_heads = 16;
  config.linear_key_dim = 128;
  config.linear_value_dim = 128;
  config.conv_kernel = 4;
  config.intermediate = 3584;
  return config;
}

}  // namespace

int main() {
  const std::filesystem::path dir = std::filesystem::temp_directory_path() / fmt::format("avocet_load_bench_{}", getpid());
  std::filesystem::create_directories(dir);
  const std::string path = (dir / "model.safetensors").string();
  WriteCheckpoint(path);

  const auto cores = static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency()));
  for (const int32_t num_workers : {1, cores}) {
    device::WorkerPoolOptions options;
    options.cpus.assign(static_cast<size_t>(num_workers), -1);
    const auto pool = device::WorkerPool::Create(options).value();
    double load = 1e9;
    double copy = 1e9;
    for (int round = 0; round < kRounds; ++round) {
      load = std::min(load, LoadOnce(dir.string(), *pool));
      copy = std::min(copy, CopyOnce(path, *pool));
    }
    const double gigabytes = 2.0 * static_cast<double>(kTotalBytes) / 1e9;  // read and written
    fmt::print(
        "{{\"what\": \"load bf16 checkpoint from the page cache\", \"workers\": {}, \"value\": {:.2f}, \"roof\": {:.2f}, \"unit\": "
        "\"GB/s\", "
        "\"ratio\": {:.3f}}}\n",
        num_workers, gigabytes / load, gigabytes / copy, copy / load);
    double fill = 1e9;
    size_t fill_bytes = 0;
    for (int round = 0; round < 3; ++round) {
      model::LoadReport report;
      const auto weights = model::MakeDummyWeights(SmallestPublished(), 1, *pool, {}, &report);
      CHECK(weights.has_value(), "{}", weights.error().message);
      fill = std::min(fill, report.seconds);
      fill_bytes = report.packed_bytes;
    }
    fmt::print("{{\"what\": \"dummy weights of 0.8B\", \"workers\": {}, \"value\": {:.3f}, \"unit\": \"s\", \"gb_per_s\": {:.2f}}}\n",
               num_workers, fill, static_cast<double>(fill_bytes) / 1e9 / fill);
    if (cores == 1) break;
  }
  std::filesystem::remove_all(dir);
  return 0;
}
