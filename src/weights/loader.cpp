#include "weights/loader.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "base/check.h"
#include "weights/pack_plan.h"

namespace avocet::weights {
namespace {

// A part of a tensor that something declared will read.
struct Use {
  const TensorInfo* tensor = nullptr;
  int64_t first_element = 0;
  int64_t num_elements = 0;
};

struct PlannedVector {
  const TensorInfo* tensor = nullptr;
  VectorTransform transform = VectorTransform::kNone;
  std::span<const float>* out = nullptr;
};

std::optional<ops::SourceType> SourceTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kBf16: return ops::SourceType::kBf16;
    case DType::kF16: return ops::SourceType::kF16;
    case DType::kF32: return ops::SourceType::kF32;
    default: return std::nullopt;
  }
}

ops::WeightFormat FormatFor(WeightPolicy policy, std::span<const SourceRows> sources) {
  if (policy == WeightPolicy::kBf16) return ops::WeightFormat::kBf16;
  if (policy == WeightPolicy::kF32) return ops::WeightFormat::kF32;
  const bool all_bf16 = std::ranges::all_of(sources, [](const SourceRows& s) { return s.type == ops::SourceType::kBf16; });
  return all_bf16 ? ops::WeightFormat::kBf16 : ops::WeightFormat::kF32;
}

std::string_view ConversionText(ops::SourceType source, ops::WeightFormat format) {
  if (format == ops::WeightFormat::kBf16)
    return source == ops::SourceType::kF16 ? "f16 matrices rounded to bf16" : "f32 matrices rounded to bf16";
  return source == ops::SourceType::kF16 ? "f16 matrices widened to f32 (exact)" : "bf16 matrices widened to f32 (exact)";
}

bool IsConverted(ops::SourceType source, ops::WeightFormat format) {
  return source != (format == ops::WeightFormat::kBf16 ? ops::SourceType::kBf16 : ops::SourceType::kF32);
}

}  // namespace

struct Loader::Impl {
  Impl(const Checkpoint& checkpoint_in, WeightPolicy policy_in) : checkpoint(checkpoint_in), policy(policy_in) {}

  const Checkpoint& checkpoint;
  WeightPolicy policy;
  PackPlan plan;
  std::vector<ops::PackedWeight*> matrix_outs;  // parallel to plan.matrices
  std::vector<PlannedVector> vectors;
  std::vector<Use> uses;
  std::vector<std::pair<std::string, std::string>> unused_groups;  // prefix, group
  std::map<std::string, int64_t> unused_counts;                    // group -> tensors
  std::map<std::string_view, int64_t> conversion_counts;
  size_t packed_bytes = 0;
  PackStats stats;

  Result<const TensorInfo*> FindTensor(const std::string& name, std::span<const int64_t> shape) const;
  Result<void> CheckUses();
  Result<void> CheckLeftOver(std::span<const Use> sorted_uses);
  Result<void> FillVectors(device::Arena& arena) const;
};

// The tensor, if it has exactly this shape and a float type that is read.
Result<const TensorInfo*> Loader::Impl::FindTensor(const std::string& name, std::span<const int64_t> shape) const {
  const TensorInfo* tensor = checkpoint.Find(name);
  if (tensor == nullptr) {
    return Fail(Errc::kCorrupt, "{} has no tensor {}, wanted with shape {} (incomplete download, or config.json of another model?)",
                checkpoint.model_dir(), name, ShapeText(shape));
  }
  if (!SourceTypeOf(tensor->dtype)) {
    return Fail(Errc::kUnsupported, "{}: tensor {} is {}, only BF16, F16 and F32 are loaded; int8 and fp8 checkpoints are not served yet",
                checkpoint.PathOf(*tensor), name, tensor->Describe());
  }
  if (!std::ranges::equal(tensor->shape, shape)) {
    return Fail(Errc::kCorrupt, "{}: tensor {} is {}, config.json asks for shape {}", checkpoint.PathOf(*tensor), name, tensor->Describe(),
                ShapeText(shape));
  }
  return tensor;
}

Loader::Loader(const Checkpoint& checkpoint, WeightPolicy policy) : impl_(std::make_unique<Impl>(checkpoint, policy)) {}
Loader::~Loader() = default;

Result<void> Loader::AddMatrix(const MatrixSpec& spec, ops::PackedWeight* out) {
  CHECK(spec.in_features > 0 && !spec.blocks.empty(), "matrix with {} inputs and {} blocks", spec.in_features, spec.blocks.size());
  CHECK(spec.order == RowOrder::kConcat || (spec.blocks.size() == 2 && spec.blocks[0].num_rows == spec.blocks[1].num_rows),
        "gate and up of {} must be two blocks of one height", spec.blocks[0].tensor);
  std::vector<SourceRows> sources;
  std::vector<Use> uses;
  int64_t num_rows = 0;
  for (const RowBlock& block : spec.blocks) {
    const std::array<int64_t, 2> whole = {block.num_rows, spec.in_features};
    AVOCET_TRY(const TensorInfo* tensor,
               impl_->FindTensor(block.tensor, block.shape.empty() ? whole : std::span<const int64_t>(block.shape)));
    CHECK(block.first_row >= 0 && (block.first_row + block.num_rows) * spec.in_features <= tensor->NumElements(), "rows {}+{} of {}",
          block.first_row, block.num_rows, block.tensor);
    const ops::SourceType type = *SourceTypeOf(tensor->dtype);
    const size_t row_bytes = static_cast<size_t>(spec.in_features) * ops::SourceBytes(type);
    sources.push_back({tensor, static_cast<size_t>(block.first_row) * row_bytes, block.num_rows, type});
    uses.push_back({tensor, block.first_row * spec.in_features, block.num_rows * spec.in_features});
    num_rows += block.num_rows;
  }

  PlannedMatrix matrix;
  matrix.weight = {FormatFor(impl_->policy, sources), OutFeatures(spec.order, num_rows), spec.in_features, nullptr};
  matrix.order = spec.order;
  matrix.first_source = static_cast<uint32_t>(impl_->plan.sources.size());
  matrix.num_sources = static_cast<uint32_t>(sources.size());
  for (const SourceRows& source : sources) {
    if (IsConverted(source.type, matrix.weight.format)) ++impl_->conversion_counts[ConversionText(source.type, matrix.weight.format)];
  }
  impl_->packed_bytes += ops::PackedBytes(matrix.weight.format, matrix.weight.out_features, matrix.weight.in_features);
  impl_->plan.sources.insert(impl_->plan.sources.end(), sources.begin(), sources.end());
  impl_->plan.matrices.push_back(matrix);
  impl_->matrix_outs.push_back(out);
  impl_->uses.insert(impl_->uses.end(), uses.begin(), uses.end());
  return {};
}

Result<void> Loader::AddVector(const std::string& name, std::span<const int64_t> shape, VectorTransform transform,
                               std::span<const float>* out) {
  AVOCET_TRY(const TensorInfo* tensor, impl_->FindTensor(name, shape));
  impl_->vectors.push_back({tensor, transform, out});
  impl_->uses.push_back({tensor, 0, tensor->NumElements()});
  impl_->packed_bytes += VectorBytes(tensor->NumElements());
  return {};
}

void Loader::AllowUnused(std::string prefix, std::string group) {
  impl_->unused_groups.emplace_back(std::move(prefix), std::move(group));
}

// Sorted by tensor, the elements used must be 0..n without hole or overlap; then no tensor may be left over. What was declared fits the
// shapes that config.json asks for, so a hole here is a bug of the caller.
Result<void> Loader::Impl::CheckUses() {
  std::vector<Use> sorted = uses;
  std::ranges::sort(sorted, {}, [](const Use& use) { return std::pair(use.tensor, use.first_element); });
  for (size_t begin = 0, end = 0; begin < sorted.size(); begin = end) {
    const TensorInfo& tensor = *sorted[begin].tensor;
    int64_t covered = 0;
    for (; end < sorted.size() && sorted[end].tensor == &tensor && sorted[end].first_element == covered; ++end) {
      covered += sorted[end].num_elements;
    }
    const bool is_complete = covered == tensor.NumElements() && (end == sorted.size() || sorted[end].tensor != &tensor);
    if (!is_complete) return Fail(Errc::kInternal, "tensor {} is not used exactly once: see its element {}", tensor.name, covered);
  }
  return CheckLeftOver(sorted);
}

Result<void> Loader::Impl::CheckLeftOver(std::span<const Use> sorted_uses) {
  const auto is_used = [&](const TensorInfo& tensor) {
    const auto it = std::ranges::lower_bound(sorted_uses, &tensor, {}, &Use::tensor);
    return it != sorted_uses.end() && it->tensor == &tensor;
  };
  const TensorInfo* first = nullptr;
  int64_t num_left_over = 0;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    if (is_used(tensor)) continue;
    const auto group = std::ranges::find_if(unused_groups, [&](const auto& g) { return tensor.name.starts_with(g.first); });
    if (group != unused_groups.end()) {
      ++unused_counts[group->second];
      continue;
    }
    if (num_left_over++ == 0) first = &tensor;
  }
  if (first == nullptr) return {};
  const std::string others = num_left_over > 1 ? fmt::format(" and {} more tensors are", num_left_over - 1) : " is";
  return Fail(Errc::kCorrupt, "{}: tensor {} ({}){} not part of the model that config.json describes", checkpoint.PathOf(*first),
              first->name, first->Describe(), others);
}

Result<void> Loader::Impl::FillVectors(device::Arena& arena) const {
  for (const PlannedVector& vector : vectors) {
    const TensorInfo& tensor = *vector.tensor;
    std::vector<std::byte> stored(tensor.bytes.size());
    AVOCET_TRY_VOID(checkpoint.Read(tensor, 0, stored));
    const std::span<float> values = AllocateVector(arena, tensor.NumElements());
    WidenToF32(*SourceTypeOf(tensor.dtype), stored.data(), tensor.NumElements(), values.data());
    if (vector.transform == VectorTransform::kPlusOne) {
      for (float& value : values) value += 1.0f;
    }
    *vector.out = values;
  }
  return {};
}

Result<device::Arena> Loader::Load(device::WorkerPool& pool, const ProgressFn& progress) {
  AVOCET_TRY_VOID(impl_->CheckUses());
  AVOCET_TRY(device::Arena arena, device::Arena::Create("weights", impl_->packed_bytes));
  AVOCET_TRY_VOID(impl_->FillVectors(arena));
  for (PlannedMatrix& matrix : impl_->plan.matrices) {
    matrix.weight.data = arena.Allocate(ops::PackedBytes(matrix.weight.format, matrix.weight.out_features, matrix.weight.in_features));
  }
  AVOCET_TRY(impl_->stats, RunPackPlan(impl_->plan, impl_->checkpoint, pool, progress));
  for (size_t i = 0; i < impl_->matrix_outs.size(); ++i) *impl_->matrix_outs[i] = impl_->plan.matrices[i].weight;
  arena.Seal();
  return arena;
}

std::span<float> AllocateVector(device::Arena& arena, int64_t num_elements) {
  return {reinterpret_cast<float*>(arena.Allocate(VectorBytes(num_elements))), static_cast<size_t>(num_elements)};
}

size_t Loader::packed_bytes() const {
  return impl_->packed_bytes;
}
const PackStats& Loader::stats() const {
  return impl_->stats;
}

std::vector<std::string> Loader::UnusedReport() const {
  std::vector<std::string> lines;
  for (const auto& [group, count] : impl_->unused_counts)
    lines.push_back(fmt::format("{} {} tensor{}", count, group, count == 1 ? "" : "s"));
  return lines;
}

std::vector<std::string> Loader::ConversionReport() const {
  std::vector<std::string> lines;
  for (const auto& [text, count] : impl_->conversion_counts) lines.push_back(fmt::format("{} {}", count, text));
  return lines;
}

}  // namespace avocet::weights
