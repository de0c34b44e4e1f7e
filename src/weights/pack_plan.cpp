#include "weights/pack_plan.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <span>

#include "base/bf16.h"
#include "weights/mapped_file.h"

namespace avocet::weights {
namespace {

using Clock = std::chrono::steady_clock;

// Large enough that a task's system calls and the counter cost nothing, small enough that the workers end together (0.5 ms of packing).
constexpr size_t kTaskBytes = size_t{4} << 20;
constexpr std::chrono::milliseconds kProgressInterval{100};

// Panels [panel_begin, panel_end) of one matrix.
struct Task {
  const std::byte* position = nullptr;  // of its first row, in a mapping
  uint32_t matrix = 0;
  int32_t panel_begin = 0;
  int32_t panel_end = 0;
};

struct Row {
  const std::byte* data = nullptr;  // nullptr: a padding column
  ops::SourceType type = ops::SourceType::kBf16;
};

class PackRun {
 public:
  PackRun(const PackPlan& plan, const ProgressFn& progress) : plan_(plan), progress_(progress) { MakeTasks(); }

  void Work(const device::Worker& worker);
  size_t total_bytes() const { return total_bytes_; }
  const TensorInfo* unreadable() const { return unreadable_.load(); }

 private:
  void MakeTasks();
  std::span<const SourceRows> SourcesOf(const PlannedMatrix& matrix) const {
    return std::span(plan_.sources).subspan(matrix.first_source, matrix.num_sources);
  }
  Row FindRow(const PlannedMatrix& matrix, int32_t panel, int32_t column) const;
  template <typename Fn>
  void ForEachRange(const Task& task, Fn fn) const;
  bool PopulateTask(const Task& task);
  void PackTask(const Task& task, std::vector<float>& scratch) const;
  void ReportProgress();

  const PackPlan& plan_;
  const ProgressFn& progress_;
  std::vector<Task> tasks_;  // in file order
  size_t total_bytes_ = 0;
  std::atomic<size_t> next_task_ = 0;
  std::atomic<size_t> done_bytes_ = 0;
  std::atomic<const TensorInfo*> unreadable_ = nullptr;
  Clock::time_point last_report_ = Clock::now();  // worker 0
};

size_t RowBytes(const PlannedMatrix& matrix, ops::SourceType type) {
  return static_cast<size_t>(matrix.weight.in_features) * ops::SourceBytes(type);
}

// The source row of an output column. kGateUp: panels alternate between the two sources; both are padded to whole panels.
Row PackRun::FindRow(const PlannedMatrix& matrix, int32_t panel, int32_t column) const {
  const std::span<const SourceRows> sources = SourcesOf(matrix);
  const auto row_of = [&matrix](const SourceRows& source, int64_t index) {
    return Row{source.data + static_cast<size_t>(index) * RowBytes(matrix, source.type), source.type};
  };
  if (matrix.order == RowOrder::kGateUp) {
    const SourceRows& source = sources[static_cast<size_t>(panel % 2)];
    const int64_t index = int64_t{panel / 2} * ops::kPanelCols + column;
    return index < source.num_rows ? row_of(source, index) : Row{};
  }
  int64_t index = int64_t{panel} * ops::kPanelCols + column;
  for (const SourceRows& source : sources) {
    if (index < source.num_rows) return row_of(source, index);
    index -= source.num_rows;
  }
  return {};
}

void PackRun::MakeTasks() {
  for (size_t m = 0; m < plan_.matrices.size(); ++m) {
    const PlannedMatrix& matrix = plan_.matrices[m];
    for (const SourceRows& source : SourcesOf(matrix)) {
      total_bytes_ += static_cast<size_t>(source.num_rows) * RowBytes(matrix, source.type);
    }
    const size_t panel_bytes = ops::PanelBytes(matrix.weight.format, matrix.weight.in_features);
    // Whole pairs, so that a task of kGateUp reads the same rows of both sources.
    const auto panels_per_task = static_cast<int32_t>(std::max<size_t>(1, kTaskBytes / panel_bytes / 2) * 2);
    for (int32_t panel = 0; panel < matrix.weight.num_panels(); panel += panels_per_task) {
      const int32_t end = std::min(panel + panels_per_task, matrix.weight.num_panels());
      tasks_.push_back({FindRow(matrix, panel, 0).data, static_cast<uint32_t>(m), panel, end});
    }
  }
  std::ranges::sort(tasks_, {}, &Task::position);
}

// Calls fn(source, bytes) for the part of each source that the task reads.
template <typename Fn>
void PackRun::ForEachRange(const Task& task, Fn fn) const {
  const PlannedMatrix& matrix = plan_.matrices[task.matrix];
  int64_t begin = int64_t{task.panel_begin} * ops::kPanelCols;
  int64_t end = int64_t{task.panel_end} * ops::kPanelCols;
  if (matrix.order == RowOrder::kGateUp) begin /= 2, end /= 2;
  for (const SourceRows& source : SourcesOf(matrix)) {
    const auto first = static_cast<size_t>(std::clamp<int64_t>(begin, 0, source.num_rows));
    const auto last = static_cast<size_t>(std::clamp<int64_t>(end, 0, source.num_rows));
    const size_t row_bytes = RowBytes(matrix, source.type);
    if (last > first) fn(source, std::span(source.data + first * row_bytes, (last - first) * row_bytes));
    if (matrix.order == RowOrder::kConcat) begin -= source.num_rows, end -= source.num_rows;
  }
}

bool PackRun::PopulateTask(const Task& task) {
  bool is_readable = true;
  ForEachRange(task, [&](const SourceRows& source, std::span<const std::byte> bytes) {
    if (Populate(bytes) != PopulateResult::kUnreadable) return;
    unreadable_ = source.tensor;
    is_readable = false;
  });
  return is_readable;
}

// Rows of several types meet in a panel where a fused matrix joins them: widened first, which is exact.
void WidenRows(std::span<const Row, ops::kPanelCols> rows, int32_t in_features, std::vector<float>& scratch,
               std::array<const std::byte*, ops::kPanelCols>& out) {
  const auto width = static_cast<size_t>(in_features);
  scratch.resize(ops::kPanelCols * width);
  for (size_t c = 0; c < rows.size(); ++c) {
    if (rows[c].data == nullptr) continue;
    float* widened = scratch.data() + c * width;
    WidenToF32(rows[c].type, rows[c].data, in_features, widened);
    out[c] = reinterpret_cast<const std::byte*>(widened);
  }
}

void PackRun::PackTask(const Task& task, std::vector<float>& scratch) const {
  const PlannedMatrix& matrix = plan_.matrices[task.matrix];
  const ops::PackedWeight& weight = matrix.weight;
  const size_t panel_bytes = ops::PanelBytes(weight.format, weight.in_features);
  for (int32_t panel = task.panel_begin; panel < task.panel_end; ++panel) {
    std::array<Row, ops::kPanelCols> rows;
    std::array<const std::byte*, ops::kPanelCols> data{};
    bool is_mixed = false;
    for (int32_t c = 0; c < ops::kPanelCols; ++c) {
      Row& row = rows[static_cast<size_t>(c)];
      row = FindRow(matrix, panel, c);
      data[static_cast<size_t>(c)] = row.data;
      is_mixed = is_mixed || (row.data != nullptr && row.type != rows[0].type);
    }
    if (is_mixed) WidenRows(rows, weight.in_features, scratch, data);
    // The arena is written here and nowhere else; a PackedWeight is read-only for everyone after.
    std::byte* dst = const_cast<std::byte*>(weight.data) + static_cast<size_t>(panel) * panel_bytes;
    ops::PackPanel(weight.format, is_mixed ? ops::SourceType::kF32 : rows[0].type, data.data(), weight.in_features, dst);
  }
}

void PackRun::ReportProgress() {
  const Clock::time_point now = Clock::now();
  if (!progress_ || now - last_report_ < kProgressInterval) return;
  last_report_ = now;
  progress_(done_bytes_.load(std::memory_order_relaxed), total_bytes_);
}

void PackRun::Work(const device::Worker& worker) {
  std::vector<float> scratch;
  while (unreadable_.load(std::memory_order_relaxed) == nullptr) {
    const size_t index = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (index >= tasks_.size()) return;
    const Task& task = tasks_[index];
    if (!PopulateTask(task)) return;
    PackTask(task, scratch);
    size_t num_bytes = 0;
    ForEachRange(task, [&num_bytes](const SourceRows&, std::span<const std::byte> bytes) {
      Release(bytes);
      num_bytes += bytes.size();
    });
    done_bytes_.fetch_add(num_bytes, std::memory_order_relaxed);
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
  PackRun run(plan, progress);
  const Clock::time_point start = Clock::now();
  pool.Run([&run](device::Worker& worker) { run.Work(worker); });
  if (const TensorInfo* tensor = run.unreadable()) {
    return Fail(Errc::kIo, "{}/{}: reading tensor {} failed; the file was changed while it was loaded, or the disk has an error",
                checkpoint.model_dir(), checkpoint.files()[static_cast<size_t>(tensor->file)], tensor->name);
  }
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
