#include "weights/pack_plan.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
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
};

struct WorkerBuffers {
  std::vector<std::byte> rows;
  std::vector<StagedRows> staged;  // parallel to the sources of the matrix
  std::vector<float> widened;
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
  for (size_t s = 0; s < sources.size(); ++s) {
    const SourceRows& source = sources[s];
    const int64_t first = std::clamp<int64_t>(begin, 0, source.num_rows);
    const int64_t last = std::clamp<int64_t>(end, 0, source.num_rows);
    const size_t row_bytes = RowBytes(matrix, source.type);
    const size_t num_bytes = static_cast<size_t>(last - first) * row_bytes;
    buffers.staged[s] = {first, filled};
    if (buffers.rows.size() < filled + num_bytes) buffers.rows.resize(filled + num_bytes);
    AVOCET_TRY_VOID(checkpoint_.Read(*source.tensor, source.offset + static_cast<size_t>(first) * row_bytes,
                                     std::span(buffers.rows).subspan(filled, num_bytes)));
    filled += num_bytes;
    if (!is_pair) begin -= source.num_rows, end -= source.num_rows;
  }
  return filled;
}

// Rows of several types meet in a panel where a fused matrix joins them: widened first, which is exact.
void WidenColumns(std::span<const ops::SourceType, ops::kPanelCols> types, int32_t in_features, std::vector<float>& widened,
                  std::span<const std::byte*, ops::kPanelCols> columns) {
  const auto width = static_cast<size_t>(in_features);
  widened.resize(ops::kPanelCols * width);
  for (size_t c = 0; c < columns.size(); ++c) {
    if (columns[c] == nullptr) continue;
    float* row = widened.data() + c * width;
    WidenToF32(types[c], columns[c], in_features, row);
    columns[c] = reinterpret_cast<const std::byte*>(row);
  }
}

void PackRun::PackPanels(const Task& task, WorkerBuffers& buffers) const {
  const PlannedMatrix& matrix = plan_.matrices[task.matrix];
  const std::span<const SourceRows> sources = SourcesOf(matrix);
  const ops::PackedWeight& weight = matrix.weight;
  const size_t panel_bytes = ops::PanelBytes(weight.format, weight.in_features);
  for (int32_t panel = task.panel_begin; panel < task.panel_end; ++panel) {
    std::array<const std::byte*, ops::kPanelCols> columns{};  // nullptr: padding
    std::array<ops::SourceType, ops::kPanelCols> types{};
    types.fill(sources[FindRow(matrix, sources, panel, 0)->source].type);
    bool is_mixed = false;
    for (size_t c = 0; c < columns.size(); ++c) {
      const std::optional<RowPlace> place = FindRow(matrix, sources, panel, static_cast<int32_t>(c));
      if (!place) continue;
      const StagedRows& staged = buffers.staged[place->source];
      types[c] = sources[place->source].type;
      is_mixed = is_mixed || types[c] != types[0];
      columns[c] = buffers.rows.data() + staged.buffer_offset + static_cast<size_t>(place->row - staged.first) * RowBytes(matrix, types[c]);
    }
    if (is_mixed) WidenColumns(types, weight.in_features, buffers.widened, columns);
    // The arena is written here and nowhere else; a PackedWeight is read-only for everyone after.
    std::byte* dst = const_cast<std::byte*>(weight.data) + static_cast<size_t>(panel) * panel_bytes;
    ops::PackPanel(weight.format, is_mixed ? ops::SourceType::kF32 : types[0], columns.data(), weight.in_features, dst);
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
