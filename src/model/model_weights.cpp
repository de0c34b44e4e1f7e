#include "model/model_weights.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <utility>

#include "base/function_ref.h"
#include "model/weight_table.h"
#include "weights/checkpoint.h"

namespace avocet::model {
namespace {

using weights::Checkpoint;

class DeclareToLoader final : public WeightVisitor {
 public:
  DeclareToLoader(const Checkpoint& checkpoint, weights::Loader& loader) : checkpoint_(checkpoint), loader_(loader) {}

  Result<void> Matrix(const weights::MatrixSpec& spec, ops::PackedWeight* out) override { return loader_.AddMatrix(spec, out); }

  Result<void> Vector(const VectorSpec& spec, std::span<const float>* out) override {
    std::vector<int64_t> shape = spec.shape;
    const weights::TensorInfo* tensor = checkpoint_.Find(spec.name);
    // Some exports drop the middle dimension of the convolution, which is 1.
    if (spec.role == VectorRole::kConv && tensor != nullptr && tensor->shape.size() == 2) shape.erase(shape.begin() + 1);
    return loader_.AddVector(spec.name, shape, spec.transform(), out);
  }

 private:
  const Checkpoint& checkpoint_;
  weights::Loader& loader_;
};

class Count final : public WeightVisitor {
 public:
  Count(ops::WeightFormat format, const weights::Quantization& quantization) : format_(format), quantization_(quantization) {}

  Result<void> Matrix(const weights::MatrixSpec& spec, ops::PackedWeight*) override {
    int64_t num_rows = 0;
    for (const weights::RowBlock& block : spec.blocks) num_rows += block.num_rows;
    num_parameters += num_rows * spec.in_features;
    packed_bytes += ops::PackedBytes(FormatOf(spec), weights::OutFeatures(spec.order, num_rows), spec.in_features);
    return {};
  }
  Result<void> Vector(const VectorSpec& spec, std::span<const float>*) override {
    num_parameters += spec.NumElements();
    packed_bytes += weights::VectorBytes(spec.NumElements());
    return {};
  }

  int64_t num_parameters = 0;
  size_t packed_bytes = 0;

 private:
  ops::WeightFormat FormatOf(const weights::MatrixSpec& spec) const {
    const std::string& tensor = spec.blocks.front().tensor;
    const bool is_described =
        quantization_.description != nullptr && quantization_.description->TypeOf(tensor) != weights::StoredType::kFloat;
    // compressed-tensors: the head is left float as a rule; the plan may be off by that.
    const bool is_by_dtype = quantization_.by_dtype && !tensor.starts_with("lm_head") && !tensor.ends_with("embed_tokens.weight");
    const bool is_int8 = spec.role == weights::MatrixRole::kProduct && (quantization_.rounds_floats || is_described || is_by_dtype);
    return is_int8 ? ops::WeightFormat::kInt8 : format_;
  }

  ops::WeightFormat format_;
  const weights::Quantization& quantization_;
};

// Where the names of a checkpoint begin, and how its experts are stored, judged by which tensors exist. Nullopt: none of the known ways.
std::optional<TensorNames> DetectNames(const ModelConfig& config, FunctionRef<bool(const std::string&)> has) {
  constexpr std::array<std::string_view, 3> kPrefixes = {"model.language_model.", "model.", ""};
  TensorNames names;
  const auto prefix = std::ranges::find_if(kPrefixes, [&](std::string_view p) { return has(std::string(p) + "embed_tokens.weight"); });
  if (prefix == kPrefixes.end()) return std::nullopt;
  names.prefix = *prefix;
  if (!config.moe) return names;
  const auto naming_of = [&](const std::string& experts) {
    return has(experts + "gate_up_proj")            ? ExpertNaming::kStacked
           : has(experts + "0.gate_up_proj.weight") ? ExpertNaming::kFused
           : has(experts + "0.gate_proj.weight")    ? ExpertNaming::kSplit
                                                    : ExpertNaming::kStacked;
  };
  for (int32_t i = 0; i < config.num_layers; ++i) {
    names.experts.push_back(naming_of(fmt::format("{}layers.{}.mlp.experts.", names.prefix, i)));
  }
  names.draft_experts = naming_of("mtp.layers.0.mlp.experts.");
  return names;
}

Result<TensorNames> DetectNames(const Checkpoint& checkpoint, const ModelConfig& config) {
  const auto has = [&checkpoint](const std::string& name) { return checkpoint.Find(name) != nullptr; };
  if (std::optional<TensorNames> names = DetectNames(config, has)) return *std::move(names);
  return Fail(Errc::kCorrupt,
              "{} has no tensor embed_tokens.weight, neither as model.language_model.embed_tokens.weight nor as "
              "model.embed_tokens.weight (incomplete download, or another model?)",
              checkpoint.model_dir());
}

Count CountWeights(const ModelConfig& config, ops::WeightFormat format, const weights::Quantization& quantization) {
  Count count(format, quantization);
  TensorNames names;
  if (quantization.description != nullptr) {
    const auto has = [&quantization](const std::string& name) { return quantization.description->Has(name); };
    names = DetectNames(config, has).value_or(TensorNames());
  }
  ModelWeights shape_only;
  [[maybe_unused]] const Result<void> always_ok = VisitWeights(config, names, shape_only, count);
  return count;
}

// The grouped products read one format per layer, and rows that are rounded once for all experts.
Result<void> CheckExpertFormats(const ModelWeights& weights) {
  for (size_t i = 0; i < weights.layers.size() + (weights.draft ? 1 : 0); ++i) {
    const LayerWeights& layer = i < weights.layers.size() ? weights.layers[i] : weights.draft->layer;
    const auto* moe = std::get_if<MoeWeights>(&layer.mlp);
    if (moe == nullptr) continue;
    for (const auto* experts : {&moe->expert_gate_up, &moe->expert_down}) {
      const bool is_uniform =
          std::ranges::all_of(*experts, [&](const ops::PackedWeight& w) { return w.format == experts->front().format; });
      if (!is_uniform) {
        return Fail(Errc::kUnsupported,
                    "the experts of layer {} have several dtypes or types; --dtype bfloat16 or float32 makes float experts one", i);
      }
      if (!experts->front().input.is_dynamic()) {
        return Fail(Errc::kUnsupported, "the experts of layer {} have the static type W8A8; experts are served as W8A8_DYNAMIC or FLOAT",
                    i);
      }
    }
  }
  return {};
}

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Result<ModelWeights> LoadModelWeights(const ModelConfig& config, const std::string& model_dir, device::WorkerPool& pool,
                                      const LoadOptions& options, LoadReport* report) {
  const auto start = std::chrono::steady_clock::now();
  AVOCET_TRY(const Checkpoint checkpoint, Checkpoint::Open(model_dir));
  AVOCET_TRY(const TensorNames names, DetectNames(checkpoint, config));

  ModelWeights result;
  weights::Loader loader(checkpoint, options.policy, options.quantization);
  DeclareToLoader declare(checkpoint, loader);
  AVOCET_TRY_VOID(VisitWeights(config, names, result, declare));
  for (const char* prefix : {"model.visual.", "visual."}) loader.AllowUnused(prefix, "vision");
  if (config.num_drafts == 0) loader.AllowUnused("mtp.", "mtp");
  if (config.tied_head) loader.AllowUnused("lm_head.weight", "tied lm_head");

  AVOCET_TRY(result.arena, loader.Load(pool, options.progress));
  if (config.tied_head) result.lm_head = result.embedding;
  AVOCET_TRY_VOID(CheckExpertFormats(result));
  if (report == nullptr) return result;

  const weights::PackStats& stats = loader.stats();
  report->file_bytes = checkpoint.total_bytes();
  report->packed_bytes = loader.packed_bytes();
  report->seconds = SecondsSince(start);
  report->copy_gb_per_s = static_cast<double>(stats.read_bytes + stats.written_bytes) / 1e9 / std::max(stats.seconds, 1e-9);
  report->unused = loader.UnusedReport();
  report->conversions = loader.ConversionReport();
  return result;
}

size_t PackedModelBytes(const ModelConfig& config, ops::WeightFormat format, const weights::Quantization& quantization) {
  return CountWeights(config, format, quantization).packed_bytes;
}

int64_t NumTextParameters(const ModelConfig& config) {
  return CountWeights(config, ops::WeightFormat::kBf16, {}).num_parameters;
}

}  // namespace avocet::model
