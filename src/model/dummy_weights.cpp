// MakeDummyWeights: every value is a function of (seed, matrix, panel, position) alone, so any number of workers makes the same model.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/bf16.h"
#include "model/weight_table.h"

namespace avocet::model {
namespace {

using Clock = std::chrono::steady_clock;

// splitmix64 (Steele, Lea, Flood 2014): a counter in, 64 random bits out.
constexpr uint64_t kStride = 0x9e3779b97f4a7c15u;
constexpr uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}
constexpr uint64_t Key(uint64_t seed, uint64_t matrix, uint64_t panel) {
  return Mix(Mix(Mix(seed + kStride) + matrix) + panel);
}

// Uniform in [-1, 1).
float UnitFloat(uint64_t key, uint64_t index) {
  return static_cast<float>(static_cast<int32_t>(Mix(key + (index + 1) * kStride) >> 40) - (1 << 23)) * 0x1p-23f;
}

struct MatrixToFill {
  weights::RowOrder order = weights::RowOrder::kConcat;
  int64_t num_rows = 0;  // without padding
  ops::PackedWeight weight;
  ops::PackedWeight* out = nullptr;
};

struct VectorToFill {
  VectorRole role = VectorRole::kNorm;
  int64_t num_elements = 0;
  std::span<const float>* out = nullptr;
};

class Collect final : public WeightVisitor {
 public:
  Collect(ops::WeightFormat format, bool rounds_floats) : format_(format), rounds_floats_(rounds_floats) {}

  Result<void> Matrix(const weights::MatrixSpec& spec, ops::PackedWeight* out) override {
    int64_t num_rows = 0;
    for (const weights::RowBlock& block : spec.blocks) num_rows += block.num_rows;
    const bool is_int8 = rounds_floats_ && spec.role == weights::MatrixRole::kProduct;
    const ops::WeightFormat format = is_int8 ? ops::WeightFormat::kInt8 : format_;
    const ops::PackedWeight weight = {format, weights::OutFeatures(spec.order, num_rows), spec.in_features, nullptr};
    matrices.push_back({spec.order, num_rows, weight, out});
    packed_bytes += ops::PackedBytes(format, weight.out_features, weight.in_features);
    return {};
  }
  Result<void> Vector(const VectorSpec& spec, std::span<const float>* out) override {
    vectors.push_back({spec.role, spec.NumElements(), out});
    packed_bytes += weights::VectorBytes(spec.NumElements());
    return {};
  }

  std::vector<MatrixToFill> matrices;
  std::vector<VectorToFill> vectors;
  size_t packed_bytes = 0;

 private:
  ops::WeightFormat format_;
  bool rounds_floats_;
};

// Norms near 1; decay exp(A_log) of 1 to 12 per unit of softplus, which is 0.01 to 0.1 for the time biases here: memories of a few to a
// hundred tokens, as trained models have.
float VectorValue(VectorRole role, float unit) {
  switch (role) {
    case VectorRole::kNorm:
    case VectorRole::kGatedNorm: return 1.0f + 0.1f * unit;
    case VectorRole::kConv: return 0.5f * unit;
    case VectorRole::kDecay: return 1.25f + 1.25f * unit;
    case VectorRole::kTimeBias: return -3.5f + unit;
  }
  return 0;
}

void FillVectors(std::span<const VectorToFill> vectors, uint64_t seed, device::Arena& arena) {
  constexpr uint64_t kVectorBase = uint64_t{1} << 40;  // beside the numbers of the matrices
  for (size_t v = 0; v < vectors.size(); ++v) {
    const std::span<float> values = weights::AllocateVector(arena, vectors[v].num_elements);
    const uint64_t key = Key(seed, kVectorBase + v, 0);
    for (size_t i = 0; i < values.size(); ++i) values[i] = VectorValue(vectors[v].role, UnitFloat(key, i));
    *vectors[v].out = values;
  }
}

// Elements of a bf16 panel: [in/2 rounded up][16][2].
constexpr size_t PairedElements(int32_t in_features) {
  return (static_cast<size_t>(in_features) + 1) / 2 * 2 * ops::kPanelCols;
}

// Uniform in [-bound, bound), four values from one number.
void FillBf16(uint64_t key, float bound, std::span<uint16_t> out) {
  constexpr size_t kBlock = 1024;
  std::array<uint64_t, kBlock / 4> bits;
  std::array<int16_t, kBlock> steps;
  const float scale = bound * 0x1p-15f;
  uint64_t counter = key;
  for (size_t begin = 0; begin < out.size(); begin += kBlock) {
    for (uint64_t& b : bits) b = Mix(counter += kStride);
    std::memcpy(steps.data(), bits.data(), sizeof(steps));
    const size_t count = std::min(kBlock, out.size() - begin);
    for (size_t i = 0; i < count; ++i) {
      // ToBf16 without its NaN case, which would keep this loop from being vectorised (3x).
      const uint32_t wide = std::bit_cast<uint32_t>(static_cast<float>(steps[i]) * scale);
      out[begin + i] = static_cast<uint16_t>((wide + 0x7fffu + ((wide >> 16) & 1u)) >> 16);
    }
  }
}

// Real columns of a panel; the others are padding.
int64_t NumColumns(const MatrixToFill& matrix, int32_t panel) {
  const bool is_pair = matrix.order == weights::RowOrder::kGateUp;
  const int64_t rows = is_pair ? matrix.num_rows / 2 : matrix.num_rows;
  const int64_t first = int64_t{is_pair ? panel / 2 : panel} * ops::kPanelCols;
  return std::clamp<int64_t>(rows - first, 0, ops::kPanelCols);
}

// Zero columns and the zero k that packing would have left.
void ClearPadding(const MatrixToFill& matrix, int32_t panel, std::span<uint16_t> paired) {
  const int64_t num_columns = NumColumns(matrix, panel);
  const int32_t in_features = matrix.weight.in_features;
  if (num_columns < ops::kPanelCols) {
    for (size_t row = 0; row < paired.size(); row += 2 * ops::kPanelCols) {
      std::ranges::fill(paired.subspan(row + 2 * static_cast<size_t>(num_columns), 2 * static_cast<size_t>(ops::kPanelCols - num_columns)),
                        0);
    }
  }
  if (in_features % 2 == 0) return;
  for (size_t i = paired.size() - 2 * ops::kPanelCols + 1; i < paired.size(); i += 2) paired[i] = 0;
}

// Outputs of the order of the inputs: variance 1/in_features.
float BoundFor(int32_t in_features) {
  return static_cast<float>(std::sqrt(3.0 / in_features));
}

// Rows of -127..127 and one scale, packed as rows from a file are.
void FillInt8Panel(const MatrixToFill& matrix, uint64_t key, int32_t panel, std::vector<uint16_t>& scratch, std::byte* dst) {
  const auto width = static_cast<size_t>(matrix.weight.in_features);
  scratch.resize((ops::kPanelCols * width + 1) / 2);
  auto* q = reinterpret_cast<int8_t*>(scratch.data());
  for (size_t i = 0; i < ops::kPanelCols * width; i += 8) {
    const uint64_t bits = Mix(key += kStride);
    std::memcpy(q + i, &bits, std::min<size_t>(8, ops::kPanelCols * width - i));
  }
  for (size_t i = 0; i < ops::kPanelCols * width; ++i) q[i] = std::max<int8_t>(q[i], -127);
  std::array<const int8_t*, ops::kPanelCols> rows{};
  std::array<float, ops::kPanelCols> scales{};
  const std::array<int32_t, ops::kPanelCols> biases{};
  scales.fill(BoundFor(matrix.weight.in_features) / 127.0f);
  for (size_t c = 0; c < static_cast<size_t>(NumColumns(matrix, panel)); ++c) rows[c] = q + c * width;
  ops::PackInt8Panel(rows.data(), scales.data(), biases.data(), matrix.weight.in_features, dst);
}

void FillPanel(const MatrixToFill& matrix, uint64_t key, int32_t panel, std::vector<uint16_t>& scratch) {
  const int32_t in_features = matrix.weight.in_features;
  const size_t num_elements = PairedElements(in_features);
  std::byte* dst =
      const_cast<std::byte*>(matrix.weight.data) + static_cast<size_t>(panel) * ops::PanelBytes(matrix.weight.format, in_features);
  if (matrix.weight.format == ops::WeightFormat::kInt8) return FillInt8Panel(matrix, key, panel, scratch, dst);
  if (matrix.weight.format == ops::WeightFormat::kBf16) {
    const std::span<uint16_t> paired(reinterpret_cast<uint16_t*>(dst), num_elements);
    FillBf16(key, BoundFor(in_features), paired);
    ClearPadding(matrix, panel, paired);
    return;
  }
  scratch.resize(num_elements);
  FillBf16(key, BoundFor(in_features), scratch);
  ClearPadding(matrix, panel, scratch);
  float* wide = reinterpret_cast<float*>(dst);  // [in][16], the same values
  for (size_t k = 0; k < static_cast<size_t>(in_features); ++k) {
    for (size_t c = 0; c < ops::kPanelCols; ++c)
      wide[k * ops::kPanelCols + c] = ToF32(Bf16{scratch[(k / 2 * ops::kPanelCols + c) * 2 + k % 2]});
  }
}

struct FillTask {
  size_t matrix = 0;
  int32_t panel_begin = 0;
  int32_t panel_end = 0;
};

std::vector<FillTask> MakeTasks(std::span<const MatrixToFill> matrices) {
  constexpr size_t kTaskBytes = size_t{2} << 20;  // a huge page: the worker that fills it is the one that faults it in
  std::vector<FillTask> tasks;
  for (size_t m = 0; m < matrices.size(); ++m) {
    const ops::PackedWeight& weight = matrices[m].weight;
    const auto step = static_cast<int32_t>(std::max<size_t>(1, kTaskBytes / ops::PanelBytes(weight.format, weight.in_features)));
    for (int32_t panel = 0; panel < weight.num_panels(); panel += step) {
      tasks.push_back({m, panel, std::min(panel + step, weight.num_panels())});
    }
  }
  return tasks;
}

void FillMatrices(std::span<const MatrixToFill> matrices, uint64_t seed, device::WorkerPool& pool, const weights::ProgressFn& progress,
                  size_t total_bytes) {
  const std::vector<FillTask> tasks = MakeTasks(matrices);
  std::atomic<size_t> next = 0;
  std::atomic<size_t> done_bytes = 0;
  auto last_report = Clock::now();
  pool.Run([&](device::Worker& worker) {
    std::vector<uint16_t> scratch;
    for (size_t t = next.fetch_add(1); t < tasks.size(); t = next.fetch_add(1)) {
      const auto [m, panel_begin, panel_end] = tasks[t];
      const MatrixToFill& matrix = matrices[m];
      for (int32_t panel = panel_begin; panel < panel_end; ++panel) {
        FillPanel(matrix, Key(seed, m, static_cast<uint64_t>(panel)), panel, scratch);
      }
      done_bytes += static_cast<size_t>(panel_end - panel_begin) * ops::PanelBytes(matrix.weight.format, matrix.weight.in_features);
      if (worker.id() == 0 && progress && Clock::now() - last_report > std::chrono::milliseconds(100)) {
        last_report = Clock::now();
        progress(done_bytes, total_bytes);
      }
    }
  });
  if (progress) progress(total_bytes, total_bytes);
}

}  // namespace

Result<ModelWeights> MakeDummyWeights(const ModelConfig& config, uint64_t seed, device::WorkerPool& pool, const LoadOptions& options,
                                      LoadReport* report) {
  const auto start = Clock::now();
  ModelWeights result;
  Collect collect(options.policy == weights::WeightPolicy::kF32 ? ops::WeightFormat::kF32 : ops::WeightFormat::kBf16,
                  options.quantization.rounds_floats);
  AVOCET_TRY_VOID(VisitWeights(config, {}, result, collect));
  AVOCET_TRY(result.arena, device::Arena::Create("weights", collect.packed_bytes));
  FillVectors(collect.vectors, seed, result.arena);
  for (MatrixToFill& matrix : collect.matrices) {
    ops::PackedWeight& weight = matrix.weight;
    weight.data = result.arena.Allocate(ops::PackedBytes(weight.format, weight.out_features, weight.in_features));
    *matrix.out = weight;
  }
  FillMatrices(collect.matrices, seed, pool, options.progress, collect.packed_bytes);
  result.arena.Seal();
  if (config.tied_head) result.lm_head = result.embedding;
  if (report == nullptr) return result;

  *report = {};
  report->packed_bytes = collect.packed_bytes;
  report->seconds = std::chrono::duration<double>(Clock::now() - start).count();
  report->copy_gb_per_s = static_cast<double>(collect.packed_bytes) / 1e9 / std::max(report->seconds, 1e-9);
  return result;
}

}  // namespace avocet::model
