#include "weights/loader.h"

#include <algorithm>
#include <array>
#include <cmath>
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

bool IsInt8(const SourceRows& source) {
  return source.type == ops::SourceType::kInt8;
}

ops::WeightFormat FormatFor(WeightPolicy policy, const Quantization& quantization, MatrixRole role, std::span<const SourceRows> sources) {
  if (role == MatrixRole::kProduct && (quantization.rounds_floats || IsInt8(sources.front()))) return ops::WeightFormat::kInt8;
  if (policy == WeightPolicy::kBf16) return ops::WeightFormat::kBf16;
  if (policy == WeightPolicy::kF32) return ops::WeightFormat::kF32;
  const bool all_bf16 = std::ranges::all_of(
      sources, [](const SourceRows& s) { return s.type == ops::SourceType::kBf16 || s.type == ops::SourceType::kF8E4M3; });
  return all_bf16 ? ops::WeightFormat::kBf16 : ops::WeightFormat::kF32;
}

std::string_view ConversionText(ops::SourceType source, ops::WeightFormat format) {
  if (format == ops::WeightFormat::kInt8) return "float matrices rounded to int8 (per channel, symmetric)";
  if (source == ops::SourceType::kInt8) return "int8 gates widened to float";
  if (source == ops::SourceType::kF8E4M3)
    return format == ops::WeightFormat::kBf16 ? "fp8 matrices rounded to bf16" : "fp8 matrices widened to f32";
  if (format == ops::WeightFormat::kBf16)
    return source == ops::SourceType::kF16 ? "f16 matrices rounded to bf16" : "f32 matrices rounded to bf16";
  return source == ops::SourceType::kF16 ? "f16 matrices widened to f32 (exact)" : "bf16 matrices widened to f32 (exact)";
}

bool IsConverted(ops::SourceType source, ops::WeightFormat format) {
  if (format == ops::WeightFormat::kInt8) return source != ops::SourceType::kInt8;
  return source != (format == ops::WeightFormat::kBf16 ? ops::SourceType::kBf16 : ops::SourceType::kF32);
}

}  // namespace

struct Loader::Impl {
  Impl(const Checkpoint& checkpoint_in, WeightPolicy policy_in, const Quantization& quantization_in)
      : checkpoint(checkpoint_in), policy(policy_in), quantization(quantization_in) {}

  const Checkpoint& checkpoint;
  WeightPolicy policy;
  Quantization quantization;
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
  Result<const TensorInfo*> FindFloat(const std::string& name, std::span<const int64_t> shape) const;
  Result<const TensorInfo*> FindSide(const std::string& name, int64_t num_rows, std::span<const DType> dtypes) const;
  Result<SourceRows> FindInt8Rows(const RowBlock& block, const MatrixSpec& spec, ops::Int8Input* input);
  Result<SourceRows> FindFp8Rows(const RowBlock& block, const MatrixSpec& spec);
  Result<SourceRows> FindFloatRows(const RowBlock& block, const MatrixSpec& spec);
  Result<float> ReadScalar(const std::string& name);
  Result<void> CheckOneType(const MatrixSpec& spec) const;
  StoredType TypeOf(const std::string& tensor) const;
  std::string_view TypeTextOf(const std::string& tensor) const;
  void UseWhole(const TensorInfo* tensor) { uses.push_back({tensor, 0, tensor->NumElements()}); }
  Result<void> CheckUses();
  Result<void> CheckLeftOver(std::span<const Use> sorted_uses);
  Result<void> FillVectors(device::Arena& arena) const;
};

StoredType Loader::Impl::TypeOf(const std::string& tensor) const {
  if (quantization.description != nullptr) return quantization.description->TypeOf(tensor);
  if (!quantization.by_dtype) return StoredType::kFloat;
  const TensorInfo* found = checkpoint.Find(tensor);
  return found != nullptr && found->dtype == DType::kI8 ? StoredType::kInt8Dynamic : StoredType::kFloat;
}

std::string_view Loader::Impl::TypeTextOf(const std::string& tensor) const {
  const std::string_view text = quantization.description != nullptr ? quantization.description->TypeTextOf(tensor) : std::string_view();
  if (!text.empty()) return text;
  return TypeOf(tensor) == StoredType::kFloat ? "FLOAT" : "I8";
}

// The tensor, if it has exactly this shape.
Result<const TensorInfo*> Loader::Impl::FindTensor(const std::string& name, std::span<const int64_t> shape) const {
  const TensorInfo* tensor = checkpoint.Find(name);
  if (tensor == nullptr) {
    return Fail(Errc::kCorrupt, "{} has no tensor {}, wanted with shape {} (incomplete download, or config.json of another model?)",
                checkpoint.model_dir(), name, ShapeText(shape));
  }
  if (!std::ranges::equal(tensor->shape, shape)) {
    return Fail(Errc::kCorrupt, "{}: tensor {} is {}, config.json asks for shape {}", checkpoint.PathOf(*tensor), name, tensor->Describe(),
                ShapeText(shape));
  }
  return tensor;
}

// As FindTensor, of a float type.
Result<const TensorInfo*> Loader::Impl::FindFloat(const std::string& name, std::span<const int64_t> shape) const {
  if (TypeOf(name) != StoredType::kFloat) {
    return Fail(Errc::kUnsupported, "{}: tensor {} has the type {}, FLOAT is wanted", QuantDescription::kFileName, name, TypeTextOf(name));
  }
  if (const TensorInfo* tensor = checkpoint.Find(name); tensor != nullptr && !SourceTypeOf(tensor->dtype)) {
    return Fail(Errc::kUnsupported, "{}: tensor {} is {}; wanted is BF16, F16 or F32, or I8 with an entry W8A8_DYNAMIC or W8A8 in {}",
                checkpoint.PathOf(*tensor), name, tensor->Describe(), QuantDescription::kFileName);
  }
  return FindTensor(name, shape);
}

// One value a row: [rows] or [rows, 1].
Result<const TensorInfo*> Loader::Impl::FindSide(const std::string& name, int64_t num_rows, std::span<const DType> dtypes) const {
  const TensorInfo* tensor = checkpoint.Find(name);
  std::string wanted;
  for (const DType dtype : dtypes) wanted += fmt::format("{}{}", wanted.empty() ? "" : " or ", DTypeName(dtype));
  if (tensor == nullptr) {
    return Fail(Errc::kCorrupt, "{} has no tensor {}, wanted as {} [{}, 1]", checkpoint.model_dir(), name, wanted, num_rows);
  }
  const bool has_shape = tensor->shape == std::vector{num_rows, int64_t{1}} || tensor->shape == std::vector{num_rows};
  if (!has_shape || std::ranges::find(dtypes, tensor->dtype) == dtypes.end()) {
    return Fail(Errc::kCorrupt, "{}: tensor {} is {}, wanted is {} [{}, 1]", checkpoint.PathOf(*tensor), name, tensor->Describe(), wanted,
                num_rows);
  }
  return tensor;
}

constexpr std::array kFloatTypes = {DType::kF32, DType::kBf16, DType::kF16};

// input_scale or input_offset: one number.
Result<float> Loader::Impl::ReadScalar(const std::string& name) {
  constexpr std::array kTypes = {DType::kF32, DType::kBf16, DType::kF16, DType::kI8};
  AVOCET_TRY(const TensorInfo* tensor, FindSide(name, 1, kTypes));
  UseWhole(tensor);
  std::array<std::byte, 8> bytes{};
  const std::span<std::byte> stored = std::span(bytes).first(DTypeBytes(tensor->dtype));
  AVOCET_TRY_VOID(checkpoint.Read(*tensor, 0, stored));
  float value = static_cast<float>(static_cast<int8_t>(bytes[0]));
  if (const auto type = SourceTypeOf(tensor->dtype)) WidenToF32(*type, bytes.data(), 1, &value);
  if (!std::isfinite(value)) return Fail(Errc::kCorrupt, "{}: tensor {} is {}, not a number", checkpoint.PathOf(*tensor), name, value);
  return value;
}

// A whole int8 tensor X.weight and what stands beside it.
Result<SourceRows> Loader::Impl::FindInt8Rows(const RowBlock& block, const MatrixSpec& spec, ops::Int8Input* input) {
  constexpr std::string_view kSuffix = ".weight";
  const std::array<int64_t, 2> shape = {block.num_rows, spec.in_features};
  if (!block.tensor.ends_with(kSuffix) || !block.shape.empty()) {
    return Fail(Errc::kUnsupported, "tensor {} is int8 and holds several matrices; int8 experts are stored one by one", block.tensor);
  }
  if (spec.in_features > ops::kInt8InFeaturesMax) {
    return Fail(Errc::kUnsupported, "tensor {} has {} columns, int8 products take at most {}", block.tensor, spec.in_features,
                ops::kInt8InFeaturesMax);
  }
  const std::string base = block.tensor.substr(0, block.tensor.size() - kSuffix.size());
  AVOCET_TRY(const TensorInfo* tensor, FindTensor(block.tensor, shape));
  if (tensor->dtype != DType::kI8) {
    return Fail(Errc::kCorrupt, "{}: tensor {} is {}, {} says {}: I8 is wanted", checkpoint.PathOf(*tensor), block.tensor,
                tensor->Describe(), QuantDescription::kFileName, TypeTextOf(block.tensor));
  }
  SourceRows rows{.tensor = tensor, .num_rows = block.num_rows, .type = ops::SourceType::kInt8};
  UseWhole(tensor);
  const bool is_static = TypeOf(block.tensor) == StoredType::kInt8Static;
  if (is_static) {
    if (spec.role == MatrixRole::kGate) return Fail(Errc::kUnsupported, "tensor {} is a gate of type W8A8, FLOAT is wanted", block.tensor);
    constexpr std::array kScaleTypes = {DType::kF32, DType::kI64};
    constexpr std::array kBiasTypes = {DType::kI32};
    AVOCET_TRY(input->scale, ReadScalar(base + ".input_scale"));
    AVOCET_TRY(input->offset, ReadScalar(base + ".input_offset"));
    if (!(input->scale > 0)) return Fail(Errc::kCorrupt, "tensor {}.input_scale is {}, a scale is above 0", base, input->scale);
    AVOCET_TRY(rows.scales, FindSide(base + ".deq_scale", block.num_rows, kScaleTypes));
    AVOCET_TRY(rows.biases, FindSide(base + ".quant_bias", block.num_rows, kBiasTypes));
    UseWhole(rows.biases);
    if (const TensorInfo* scale = checkpoint.Find(base + ".weight_scale")) UseWhole(scale);
  } else {
    AVOCET_TRY(rows.scales, FindSide(base + ".weight_scale", block.num_rows, kFloatTypes));
  }
  UseWhole(rows.scales);
  if (checkpoint.Find(base + ".weight_offset") == nullptr) return rows;
  AVOCET_TRY(rows.offsets, FindSide(base + ".weight_offset", block.num_rows, kFloatTypes));
  UseWhole(rows.offsets);
  return rows;
}

// Rows of an fp8 tensor X.weight, and the scales of its blocks.
Result<SourceRows> Loader::Impl::FindFp8Rows(const RowBlock& block, const MatrixSpec& spec) {
  const std::vector<int64_t> shape = block.shape.empty() ? std::vector<int64_t>{block.num_rows, spec.in_features} : block.shape;
  if (shape.size() != 2 || !block.tensor.ends_with(".weight")) {
    return Fail(Errc::kUnsupported, "tensor {} is fp8 and holds several matrices; fp8 experts are stored one by one", block.tensor);
  }
  AVOCET_TRY(const TensorInfo* tensor, FindTensor(block.tensor, shape));
  const auto blocks = [this](int64_t count) { return (count + quantization.fp8_block - 1) / quantization.fp8_block; };
  const std::array<int64_t, 2> scales_shape = {blocks(shape[0]), blocks(shape[1])};
  AVOCET_TRY(const TensorInfo* scales, FindFloat(block.tensor + "_scale_inv", scales_shape));
  if (block.first_row == 0) UseWhole(scales);  // once, by the block that has the first row
  uses.push_back({tensor, block.first_row * spec.in_features, block.num_rows * spec.in_features});
  return SourceRows{.tensor = tensor,
                    .offset = static_cast<size_t>(block.first_row) * static_cast<size_t>(spec.in_features),
                    .num_rows = block.num_rows,
                    .type = ops::SourceType::kF8E4M3,
                    .block_scales = scales,
                    .block = quantization.fp8_block};
}

Result<SourceRows> Loader::Impl::FindFloatRows(const RowBlock& block, const MatrixSpec& spec) {
  if (const TensorInfo* found = checkpoint.Find(block.tensor);
      quantization.fp8_block > 0 && found != nullptr && found->dtype == DType::kF8E4M3) {
    return FindFp8Rows(block, spec);
  }
  const std::array<int64_t, 2> whole = {block.num_rows, spec.in_features};
  AVOCET_TRY(const TensorInfo* tensor, FindFloat(block.tensor, block.shape.empty() ? whole : std::span<const int64_t>(block.shape)));
  CHECK(block.first_row >= 0 && (block.first_row + block.num_rows) * spec.in_features <= tensor->NumElements(), "rows {}+{} of {}",
        block.first_row, block.num_rows, block.tensor);
  const ops::SourceType type = *SourceTypeOf(tensor->dtype);
  const size_t row_bytes = static_cast<size_t>(spec.in_features) * ops::SourceBytes(type);
  uses.push_back({tensor, block.first_row * spec.in_features, block.num_rows * spec.in_features});
  return SourceRows{.tensor = tensor, .offset = static_cast<size_t>(block.first_row) * row_bytes, .num_rows = block.num_rows, .type = type};
}

// One product reads a fused matrix: its parts are all of one type, of one that is served.
Result<void> Loader::Impl::CheckOneType(const MatrixSpec& spec) const {
  const std::string& first = spec.blocks.front().tensor;
  for (const RowBlock& block : spec.blocks) {
    if (TypeOf(block.tensor) == StoredType::kOther) {
      return Fail(Errc::kUnsupported, "{}: tensor {} has the type {}; served are FLOAT, W8A8_DYNAMIC and W8A8", QuantDescription::kFileName,
                  block.tensor, TypeTextOf(block.tensor));
    }
    if (TypeOf(block.tensor) != TypeOf(first)) {
      return Fail(Errc::kCorrupt, "tensor {} has the type {}, but {} has {}: they are one product and must have one type", block.tensor,
                  TypeTextOf(block.tensor), first, TypeTextOf(first));
    }
  }
  return {};
}

Loader::Loader(const Checkpoint& checkpoint, WeightPolicy policy, const Quantization& quantization)
    : impl_(std::make_unique<Impl>(checkpoint, policy, quantization)) {}
Loader::~Loader() = default;

Result<void> Loader::AddMatrix(const MatrixSpec& spec, ops::PackedWeight* out) {
  CHECK(spec.in_features > 0 && !spec.blocks.empty(), "matrix with {} inputs and {} blocks", spec.in_features, spec.blocks.size());
  CHECK(spec.order == RowOrder::kConcat || (spec.blocks.size() == 2 && spec.blocks[0].num_rows == spec.blocks[1].num_rows),
        "gate and up of {} must be two blocks of one height", spec.blocks[0].tensor);
  AVOCET_TRY_VOID(impl_->CheckOneType(spec));
  std::vector<SourceRows> sources;
  ops::Int8Input input;
  int64_t num_rows = 0;
  for (const RowBlock& block : spec.blocks) {
    if (impl_->TypeOf(block.tensor) == StoredType::kFloat) {
      AVOCET_TRY(const SourceRows rows, impl_->FindFloatRows(block, spec));
      sources.push_back(rows);
    } else {
      ops::Int8Input own;
      AVOCET_TRY(const SourceRows rows, impl_->FindInt8Rows(block, spec, &own));
      if (sources.empty()) input = own;
      if (own != input) {
        return Fail(Errc::kUnsupported,
                    "{} and {} have different input_scale or input_offset ({} and {}, {} and {}): one product reads both",
                    spec.blocks.front().tensor, block.tensor, input.scale, own.scale, input.offset, own.offset);
      }
      sources.push_back(rows);
    }
    num_rows += block.num_rows;
  }

  PlannedMatrix matrix;
  matrix.weight = {FormatFor(impl_->policy, impl_->quantization, spec.role, sources), OutFeatures(spec.order, num_rows), spec.in_features,
                   nullptr, input};
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
  return {};
}

Result<void> Loader::AddVector(const std::string& name, std::span<const int64_t> shape, VectorTransform transform,
                               std::span<const float>* out) {
  AVOCET_TRY(const TensorInfo* tensor, impl_->FindFloat(name, shape));
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
