#include "weights/pack_plan.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "base/bf16.h"

namespace avocet::weights {
namespace {

using Clock = std::chrono::steady_clock;

// Fits a core's second-level cache, and one read of it costs the disk more than the system call.
constexpr size_t kTaskBytes = size_t{1} << 20;
constexpr std::chrono::milliseconds kProgressInterval{100};

// Panels [panel_begin, panel_end) of one matrix.
struct Task {
  const std::byte* position = nullptr;  // of its first row in a mapping, for the order alone
  uint32_t matrix = 0;
  int32_t panel_begin = 0;
  int32_t panel_end = 0;
};

// Where the row of an output column lies. kGateUp: panels alternate between the two sources, both padded to whole panels.
struct RowPlace {
  size_t source = 0;
  int64_t row = 0;
};

// The rows of one source that the current task reads.
struct StagedRows {
  int64_t first = 0;
  size_t buffer_offset = 0;
  size_t side_offset = 0;  // of its first scale and bias, or row of block scales
};

struct WorkerBuffers {
  std::vector<std::byte> rows;
  std::vector<StagedRows> staged;  // parallel to the sources of the matrix
  std::vector<float> widened;
  // Of the staged rows of every source, one after the other as `staged` says; int8 sources only.
  std::vector<float> scales;
  std::vector<int32_t> biases;
  std::vector<std::byte> side;      // as in the file
  std::vector<float> block_scales;  // fp8 sources: of the staged rows' blocks, one row of blocks after the other
  std::vector<int8_t> rounded;      // [kPanelCols][in_features]
};

class PackRun {
 public:
  PackRun(const PackPlan& plan, const Checkpoint& checkpoint, const ProgressFn& progress)
      : plan_(plan), checkpoint_(checkpoint), progress_(progress) {
    MakeTasks();
  }

  void Work(const device::Worker& worker);
  size_t total_bytes() const { return total_bytes_; }
  // After all workers have returned.
  std::optional<Error> TakeError() { return std::move(error_); }

 private:
  void MakeTasks();
  Result<size_t> ReadRows(const Task& task, WorkerBuffers& buffers) const;
  Result<void> ReadBlockScales(const SourceRows& source, int64_t first_row, int64_t num_rows, int32_t in_features,
                               WorkerBuffers& buffers) const;
  Result<void> ReadSides(const SourceRows& source, int64_t first, int64_t count, WorkerBuffers& buffers) const;
  Result<void> ReadSide(const TensorInfo& tensor, int64_t first, int64_t count, WorkerBuffers& buffers) const;
  void PackPanels(const Task& task, WorkerBuffers& buffers) const;
  void ReportProgress();
  std::span<const SourceRows> SourcesOf(const PlannedMatrix& matrix) const {
    return std::span(plan_.sources).subspan(matrix.first_source, matrix.num_sources);
  }

  const PackPlan& plan_;
  const Checkpoint& checkpoint_;
  const ProgressFn& progress_;
  std::vector<Task> tasks_;  // in file order
  size_t total_bytes_ = 0;
  std::atomic<size_t> next_task_ = 0;
  std::atomic<size_t> done_bytes_ = 0;
  std::atomic<bool> has_failed_ = false;
  std::optional<Error> error_;                    // of the worker that set has_failed_ first
  Clock::time_point last_report_ = Clock::now();  // worker 0
};

size_t RowBytes(const PlannedMatrix& matrix, ops::SourceType type) {
  return static_cast<size_t>(matrix.weight.in_features) * ops::SourceBytes(type);
}

std::optional<RowPlace> FindRow(const PlannedMatrix& matrix, std::span<const SourceRows> sources, int32_t panel, int32_t column) {
  if (matrix.order == RowOrder::kGateUp) {
    const auto source = static_cast<size_t>(panel % 2);
    const int64_t row = int64_t{panel / 2} * ops::kPanelCols + column;
    return row < sources[source].num_rows ? std::optional(RowPlace{source, row}) : std::nullopt;
  }
  int64_t row = int64_t{panel} * ops::kPanelCols + column;
  for (size_t source = 0; source < sources.size(); ++source) {
    if (row < sources[source].num_rows) return RowPlace{source, row};
    row -= sources[source].num_rows;
  }
  return std::nullopt;
}

void PackRun::MakeTasks() {
  for (size_t m = 0; m < plan_.matrices.size(); ++m) {
    const PlannedMatrix& matrix = plan_.matrices[m];
    const std::span<const SourceRows> sources = SourcesOf(matrix);
    for (const SourceRows& source : sources) total_bytes_ += static_cast<size_t>(source.num_rows) * RowBytes(matrix, source.type);
    const size_t panel_bytes = ops::kPanelCols * RowBytes(matrix, sources.front().type);
    // Whole pairs, so that a task of kGateUp reads the same rows of both sources.
    const auto panels_per_task = static_cast<int32_t>(std::max<size_t>(1, kTaskBytes / panel_bytes / 2) * 2);
    for (int32_t panel = 0; panel < matrix.weight.num_panels(); panel += panels_per_task) {
      const RowPlace first = *FindRow(matrix, sources, panel, 0);
      const SourceRows& source = sources[first.source];
      const size_t offset = source.offset + static_cast<size_t>(first.row) * RowBytes(matrix, source.type);
      const int32_t end = std::min(panel + panels_per_task, matrix.weight.num_panels());
      tasks_.push_back({source.tensor->bytes.data() + offset, static_cast<uint32_t>(m), panel, end});
    }
  }
  std::ranges::sort(tasks_, {}, &Task::position);
}

// Each source's part of the task, one behind the other in the buffer; returns the bytes.
Result<size_t> PackRun::ReadRows(const Task& task, WorkerBuffers& buffers) const {
  const PlannedMatrix& matrix = plan_.matrices[task.matrix];
  const std::span<const SourceRows> sources = SourcesOf(matrix);
  const bool is_pair = matrix.order == RowOrder::kGateUp;
  int64_t begin = int64_t{is_pair ? task.panel_begin / 2 : task.panel_begin} * ops::kPanelCols;
  int64_t end = int64_t{is_pair ? task.panel_end / 2 : task.panel_end} * ops::kPanelCols;
  size_t filled = 0;
  buffers.staged.assign(sources.size(), {});
  buffers.scales.clear();
  buffers.biases.clear();
  buffers.block_scales.clear();
  for (size_t s = 0; s < sources.size(); ++s) {
    const SourceRows& source = sources[s];
    const int64_t first = std::clamp<int64_t>(begin, 0, source.num_rows);
    const int64_t last = std::clamp<int64_t>(end, 0, source.num_rows);
    const size_t row_bytes = RowBytes(matrix, source.type);
    const size_t num_bytes = static_cast<size_t>(last - first) * row_bytes;
    const bool is_fp8 = source.type == ops::SourceType::kF8E4M3;
    buffers.staged[s] = {first, filled, is_fp8 ? buffers.block_scales.size() : buffers.scales.size()};
    if (buffers.rows.size() < filled + num_bytes) buffers.rows.resize(filled + num_bytes);
    AVOCET_TRY_VOID(checkpoint_.Read(*source.tensor, source.offset + static_cast<size_t>(first) * row_bytes,
                                     std::span(buffers.rows).subspan(filled, num_bytes)));
    filled += num_bytes;
    if (source.type == ops::SourceType::kInt8) AVOCET_TRY_VOID(ReadSides(source, first, last - first, buffers));
    if (is_fp8 && last > first) AVOCET_TRY_VOID(ReadBlockScales(source, first, last - first, matrix.weight.in_features, buffers));
    if (!is_pair) begin -= source.num_rows, end -= source.num_rows;
  }
  return filled;
}

// The bytes of rows [first, first + count) of a tensor with one value a row.
Result<void> PackRun::ReadSide(const TensorInfo& tensor, int64_t first, int64_t count, WorkerBuffers& buffers) const {
  const size_t element = DTypeBytes(tensor.dtype);
  buffers.side.resize(static_cast<size_t>(count) * element);
  return checkpoint_.Read(tensor, static_cast<size_t>(first) * element, buffers.side);
}

void WidenScales(DType dtype, std::span<const std::byte> bytes, std::span<float> out) {
  if (dtype == DType::kI64) {  // the low half holds the bits of an f32
    for (size_t i = 0; i < out.size(); ++i) std::memcpy(&out[i], bytes.data() + i * 8, 4);
    return;
  }
  const ops::SourceType type = dtype == DType::kBf16  ? ops::SourceType::kBf16
                               : dtype == DType::kF16 ? ops::SourceType::kF16
                                                      : ops::SourceType::kF32;
  WidenToF32(type, bytes.data(), static_cast<int64_t>(out.size()), out.data());
}

Result<void> PackRun::ReadSides(const SourceRows& source, int64_t first, int64_t count, WorkerBuffers& buffers) const {
  const auto num = static_cast<size_t>(count);
  const size_t begin = buffers.scales.size();
  buffers.scales.resize(begin + num);
  buffers.biases.resize(begin + num);
  const std::span<float> scales = std::span(buffers.scales).subspan(begin);
  AVOCET_TRY_VOID(ReadSide(*source.scales, first, count, buffers));
  WidenScales(source.scales->dtype, buffers.side, scales);
  for (size_t i = 0; i < num; ++i) {
    if (std::isfinite(scales[i]) && scales[i] >= 0) continue;
    return Fail(Errc::kCorrupt, "{}: tensor {} has the scale {} at row {}; a scale is finite and not negative",
                checkpoint_.PathOf(*source.scales), source.scales->name, scales[i], first + static_cast<int64_t>(i));
  }
  if (source.offsets != nullptr) {
    AVOCET_TRY_VOID(ReadSide(*source.offsets, first, count, buffers));
    std::vector<float> offsets(num);
    WidenScales(source.offsets->dtype, buffers.side, offsets);
    const auto bad = std::ranges::find_if(offsets, [](float offset) { return offset != 0; });
    if (bad != offsets.end()) {
      return Fail(Errc::kUnsupported, "{}: tensor {} has the offset {} at row {}; only symmetric weights are served, offsets of 0",
                  checkpoint_.PathOf(*source.offsets), source.offsets->name, *bad, first + (bad - offsets.begin()));
    }
  }
  if (source.biases == nullptr) return {};
  AVOCET_TRY_VOID(ReadSide(*source.biases, first, count, buffers));
  std::memcpy(buffers.biases.data() + begin, buffers.side.data(), num * sizeof(int32_t));
  return {};
}

int32_t NumBlocks(int64_t count, int32_t block) {
  return static_cast<int32_t>((count + block - 1) / block);
}

// Rows of the tensor, not of the source, lie on the grid of blocks.
int64_t RowInTensor(const SourceRows& source, int64_t row, int32_t in_features) {
  return static_cast<int64_t>(source.offset) / in_features + row;
}

Result<void> PackRun::ReadBlockScales(const SourceRows& source, int64_t first_row, int64_t num_rows, int32_t in_features,
                                      WorkerBuffers& buffers) const {
  const int64_t first = RowInTensor(source, first_row, in_features) / source.block;
  const int64_t last = RowInTensor(source, first_row + num_rows - 1, in_features) / source.block;
  const int64_t width = NumBlocks(in_features, source.block);
  const size_t begin = buffers.block_scales.size();
  AVOCET_TRY_VOID(ReadSide(*source.block_scales, first * width, (last - first + 1) * width, buffers));
  buffers.block_scales.resize(begin + static_cast<size_t>((last - first + 1) * width));
  const std::span<float> scales = std::span(buffers.block_scales).subspan(begin);
  WidenScales(source.block_scales->dtype, buffers.side, scales);
  const auto bad = std::ranges::find_if(scales, [](float scale) { return !std::isfinite(scale) || scale < 0; });
  if (bad == scales.end()) return {};
  return Fail(Errc::kCorrupt, "{}: tensor {} has the scale {} at block {}; a scale is finite and not negative",
              checkpoint_.PathOf(*source.block_scales), source.block_scales->name, *bad, first * width + (bad - scales.begin()));
}

// The columns of a panel as they were read; nullptr: padding.
struct PanelColumns {
  std::array<const std::byte*, ops::kPanelCols> rows{};
  std::array<ops::SourceType, ops::kPanelCols> types{};
  std::array<float, ops::kPanelCols> scales{};
  std::array<int32_t, ops::kPanelCols> biases{};
  std::array<const float*, ops::kPanelCols> block_scales{};  // fp8: of the row's blocks
  int32_t block = 0;
  bool is_mixed = false;
};

PanelColumns FindColumns(const PlannedMatrix& matrix, std::span<const SourceRows> sources, int32_t panel, const WorkerBuffers& buffers) {
  PanelColumns columns;
  columns.types.fill(sources[FindRow(matrix, sources, panel, 0)->source].type);
  for (size_t c = 0; c < columns.rows.size(); ++c) {
    const std::optional<RowPlace> place = FindRow(matrix, sources, panel, static_cast<int32_t>(c));
    if (!place) continue;
    const StagedRows& staged = buffers.staged[place->source];
    const auto row = static_cast<size_t>(place->row - staged.first);
    columns.types[c] = sources[place->source].type;
    columns.is_mixed = columns.is_mixed || columns.types[c] != columns.types[0];
    columns.rows[c] = buffers.rows.data() + staged.buffer_offset + row * RowBytes(matrix, columns.types[c]);
    if (columns.types[c] == ops::SourceType::kF8E4M3) {
      const SourceRows& source = sources[place->source];
      const int32_t in_features = matrix.weight.in_features;
      const int64_t block_row =
          RowInTensor(source, place->row, in_features) / source.block - RowInTensor(source, staged.first, in_features) / source.block;
      columns.block = source.block;
      columns.block_scales[c] =
          buffers.block_scales.data() + staged.side_offset + static_cast<size_t>(block_row * NumBlocks(in_features, source.block));
    }
    if (columns.types[c] != ops::SourceType::kInt8) continue;
    columns.scales[c] = buffers.scales[staged.side_offset + row];
    columns.biases[c] = buffers.biases[staged.side_offset + row];
  }
  return columns;
}

void WidenColumn(const PanelColumns& columns, size_t c, std::span<float> row) {
  if (columns.types[c] == ops::SourceType::kF8E4M3) {
    for (size_t k = 0; k < row.size(); ++k) {
      row[k] =
          ToF32(F8E4M3{std::to_integer<uint8_t>(columns.rows[c][k])}) * columns.block_scales[c][k / static_cast<size_t>(columns.block)];
    }
    return;
  }
  if (columns.types[c] != ops::SourceType::kInt8) {
    WidenToF32(columns.types[c], columns.rows[c], static_cast<int64_t>(row.size()), row.data());
    return;
  }
  for (size_t k = 0; k < row.size(); ++k) row[k] = static_cast<float>(static_cast<int8_t>(columns.rows[c][k])) * columns.scales[c];
}

// Rows of several types meet in a panel where a fused matrix joins them, and gates are float: widened first.
void WidenColumns(int32_t in_features, WorkerBuffers& buffers, PanelColumns& columns) {
  const auto width = static_cast<size_t>(in_features);
  buffers.widened.resize(ops::kPanelCols * width);
  for (size_t c = 0; c < columns.rows.size(); ++c) {
    if (columns.rows[c] == nullptr) continue;
    const std::span<float> row = std::span(buffers.widened).subspan(c * width, width);
    WidenColumn(columns, c, row);
    columns.rows[c] = reinterpret_cast<const std::byte*>(row.data());
  }
}

// int8 from the file as it is; floats are rounded here.
void PackInt8(int32_t in_features, WorkerBuffers& buffers, PanelColumns& columns, std::byte* dst) {
  const auto width = static_cast<size_t>(in_features);
  buffers.widened.resize(width);
  buffers.rounded.resize(ops::kPanelCols * width);
  std::array<const int8_t*, ops::kPanelCols> rows{};
  for (size_t c = 0; c < rows.size(); ++c) {
    if (columns.rows[c] == nullptr) continue;
    if (columns.types[c] == ops::SourceType::kInt8) {
      rows[c] = reinterpret_cast<const int8_t*>(columns.rows[c]);
      continue;
    }
    WidenColumn(columns, c, buffers.widened);
    int8_t* q = buffers.rounded.data() + c * width;
    columns.scales[c] = ops::QuantizeWeightRow(buffers.widened, q);
    rows[c] = q;
  }
  ops::PackInt8Panel(rows.data(), columns.scales.data(), columns.biases.data(), in_features, dst);
}

void PackRun::PackPanels(const Task& task, WorkerBuffers& buffers) const {
  const PlannedMatrix& matrix = plan_.matrices[task.matrix];
  const std::span<const SourceRows> sources = SourcesOf(matrix);
  const ops::PackedWeight& weight = matrix.weight;
  const size_t panel_bytes = ops::PanelBytes(weight.format, weight.in_features);
  for (int32_t panel = task.panel_begin; panel < task.panel_end; ++panel) {
    PanelColumns columns = FindColumns(matrix, sources, panel, buffers);
    // The arena is written here and nowhere else; a PackedWeight is read-only for everyone after.
    std::byte* dst = const_cast<std::byte*>(weight.data) + static_cast<size_t>(panel) * panel_bytes;
    if (weight.format == ops::WeightFormat::kInt8) {
      PackInt8(weight.in_features, buffers, columns, dst);
      continue;
    }
    const bool is_widened = columns.is_mixed || ops::SourceBytes(columns.types[0]) == 1;
    if (is_widened) WidenColumns(weight.in_features, buffers, columns);
    ops::PackPanel(weight.format, is_widened ? ops::SourceType::kF32 : columns.types[0], columns.rows.data(), weight.in_features, dst);
  }
}

void PackRun::ReportProgress() {
  const Clock::time_point now = Clock::now();
  if (!progress_ || now - last_report_ < kProgressInterval) return;
  last_report_ = now;
  progress_(done_bytes_.load(std::memory_order_relaxed), total_bytes_);
}

void PackRun::Work(const device::Worker& worker) {
  WorkerBuffers buffers;
  while (!has_failed_.load(std::memory_order_relaxed)) {
    const size_t index = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (index >= tasks_.size()) return;
    const Task& task = tasks_[index];
    auto num_bytes = ReadRows(task, buffers);
    if (!num_bytes) {
      if (!has_failed_.exchange(true)) error_ = std::move(num_bytes).error();
      return;
    }
    PackPanels(task, buffers);
    done_bytes_.fetch_add(*num_bytes, std::memory_order_relaxed);
    if (worker.id() == 0) ReportProgress();
  }
}

}  // namespace

void WidenToF32(ops::SourceType type, const std::byte* src, int64_t num_elements, float* dst) {
  const auto count = static_cast<size_t>(num_elements);
  if (type == ops::SourceType::kF32) {
    std::memcpy(dst, src, count * sizeof(float));
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, src + i * sizeof(bits), sizeof(bits));
    dst[i] = type == ops::SourceType::kBf16 ? ToF32(Bf16{bits}) : ToF32(F16{bits});
  }
}

Result<PackStats> RunPackPlan(const PackPlan& plan, const Checkpoint& checkpoint, device::WorkerPool& pool, const ProgressFn& progress) {
  PackRun run(plan, checkpoint, progress);
  const Clock::time_point start = Clock::now();
  pool.Run([&run](device::Worker& worker) { run.Work(worker); });
  if (std::optional<Error> error = run.TakeError()) return std::unexpected(*std::move(error));
  PackStats stats;
  stats.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  stats.read_bytes = run.total_bytes();
  for (const PlannedMatrix& matrix : plan.matrices) {
    stats.written_bytes += ops::PackedBytes(matrix.weight.format, matrix.weight.out_features, matrix.weight.in_features);
  }
  if (progress) progress(stats.read_bytes, stats.read_bytes);
  return stats;
}

}  // namespace avocet::weights
