#include "model/model_weights.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "model/weight_table.h"
#include "weights/checkpoint.h"
#include "weights/model_folder.h"

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
  explicit Count(ops::WeightFormat format) : format_(format) {}

  Result<void> Matrix(const weights::MatrixSpec& spec, ops::PackedWeight*) override {
    int64_t num_rows = 0;
    for (const weights::RowBlock& block : spec.blocks) num_rows += block.num_rows;
    num_parameters += num_rows * spec.in_features;
    packed_bytes += ops::PackedBytes(format_, weights::OutFeatures(spec.order, num_rows), spec.in_features);
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
  ops::WeightFormat format_;
};

Count CountWeights(const ModelConfig& config, ops::WeightFormat format) {
  Count count(format);
  ModelWeights shape_only;
  [[maybe_unused]] const Result<void> always_ok = VisitWeights(config, {}, shape_only, count);
  return count;
}

Result<TensorNames> DetectNames(const Checkpoint& checkpoint, const ModelConfig& config) {
  constexpr std::array<std::string_view, 3> kPrefixes = {"model.language_model.", "model.", ""};
  TensorNames names;
  const auto prefix = std::ranges::find_if(
      kPrefixes, [&](std::string_view p) { return checkpoint.Find(std::string(p) + "embed_tokens.weight") != nullptr; });
  if (prefix == kPrefixes.end()) {
    return Fail(Errc::kCorrupt,
                "{} has no tensor embed_tokens.weight, neither as model.language_model.embed_tokens.weight nor as "
                "model.embed_tokens.weight (incomplete download, or another model?)",
                checkpoint.model_dir());
  }
  names.prefix = *prefix;
  if (!config.moe) return names;
  for (int32_t i = 0; i < config.num_layers; ++i) {
    const std::string experts = fmt::format("{}layers.{}.mlp.experts.", names.prefix, i);
    names.experts.push_back(checkpoint.Find(experts + "gate_up_proj") != nullptr            ? ExpertNaming::kStacked
                            : checkpoint.Find(experts + "0.gate_up_proj.weight") != nullptr ? ExpertNaming::kFused
                            : checkpoint.Find(experts + "0.gate_proj.weight") != nullptr    ? ExpertNaming::kSplit
                                                                                            : ExpertNaming::kStacked);
  }
  return names;
}

// The grouped products read one format per layer.
Result<void> CheckExpertFormats(const ModelWeights& weights) {
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    const auto* moe = std::get_if<MoeWeights>(&weights.layers[i].mlp);
    if (moe == nullptr) continue;
    for (const auto* experts : {&moe->expert_gate_up, &moe->expert_down}) {
      const bool is_uniform =
          std::ranges::all_of(*experts, [&](const ops::PackedWeight& w) { return w.format == experts->front().format; });
      if (!is_uniform) {
        return Fail(Errc::kUnsupported, "the experts of layer {} have several dtypes; --dtype bfloat16 or float32 makes them one", i);
      }
    }
  }
  return {};
}

// The place of the int8 loader (Ascend description format, no sign of it in config.json).
Result<void> RefuseQuantized(const std::string& model_dir) {
  constexpr std::string_view kDescription = "quant_model_description.json";
  AVOCET_TRY(const weights::ModelFolder folder, weights::ModelFolder::Open(model_dir));
  AVOCET_TRY(const std::vector<std::string> found, folder.List(kDescription));
  if (std::ranges::find(found, kDescription) == found.end()) return {};
  return Fail(Errc::kUnsupported, "{}/{}: an Ascend (msModelSlim) int8 checkpoint; only bf16, f16 and f32 checkpoints are served yet",
              model_dir, kDescription);
}

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Result<ModelWeights> LoadModelWeights(const ModelConfig& config, const std::string& model_dir, device::WorkerPool& pool,
                                      const LoadOptions& options, LoadReport* report) {
  const auto start = std::chrono::steady_clock::now();
  AVOCET_TRY_VOID(RefuseQuantized(model_dir));
  AVOCET_TRY(const Checkpoint checkpoint, Checkpoint::Open(model_dir));
  AVOCET_TRY(const TensorNames names, DetectNames(checkpoint, config));

  ModelWeights result;
  weights::Loader loader(checkpoint, options.policy);
  DeclareToLoader declare(checkpoint, loader);
  AVOCET_TRY_VOID(VisitWeights(config, names, result, declare));
  for (const char* prefix : {"model.visual.", "visual."}) loader.AllowUnused(prefix, "vision");
  loader.AllowUnused("mtp.", "mtp");
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

size_t PackedModelBytes(const ModelConfig& config, ops::WeightFormat format) {
  return CountWeights(config, format).packed_bytes;
}

int64_t NumTextParameters(const ModelConfig& config) {
  return CountWeights(config, ops::WeightFormat::kBf16).num_parameters;
}

}  // namespace avocet::model
