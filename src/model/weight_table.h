// Every weight of the network once, in arena order, with its names in a checkpoint and its shape (model.md 2.1). One walk serves all
// uses: declared to the loader, filled with random numbers, or counted.
// Internal to model_weights.cpp and dummy_weights.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/config.h"
#include "model/model_weights.h"
#include "weights/loader.h"

namespace avocet::model {

// What a vector is: decides its transform and its plausible values.
enum class VectorRole : uint8_t { kNorm, kGatedNorm, kConv, kDecay, kTimeBias };

struct VectorSpec {
  std::string name;
  std::vector<int64_t> shape;
  VectorRole role = VectorRole::kNorm;

  int64_t NumElements() const;
  // Zero-centred norm weights are kept as 1+w; linear_attn.norm is not zero-centred.
  weights::VectorTransform transform() const {
    return role == VectorRole::kNorm ? weights::VectorTransform::kPlusOne : weights::VectorTransform::kNone;
  }
};

class WeightVisitor {
 public:
  virtual ~WeightVisitor() = default;
  virtual Result<void> Matrix(const weights::MatrixSpec& spec, ops::PackedWeight* out) = 0;
  virtual Result<void> Vector(const VectorSpec& spec, std::span<const float>* out) = 0;
};

// How a layer's experts are stored. All three occur, also side by side in one checkpoint.
enum class ExpertNaming : uint8_t {
  kStacked,  // experts.gate_up_proj [E, 2*Im, hidden], experts.down_proj [E, hidden, Im]
  kFused,    // experts.{e}.gate_up_proj.weight [2*Im, hidden], experts.{e}.down_proj.weight
  kSplit,    // experts.{e}.{gate,up,down}_proj.weight
};

struct TensorNames {
  std::string prefix = "model.";
  std::vector<ExpertNaming> experts;  // [num_layers]; empty: all stacked
  ExpertNaming draft_experts = ExpertNaming::kStacked;

  ExpertNaming ExpertsOf(int32_t layer) const { return experts.empty() ? ExpertNaming::kStacked : experts[static_cast<size_t>(layer)]; }
};

// Shapes `weights` for the config (layers, variants, experts) and visits its parts; a tied lm_head is not visited.
Result<void> VisitWeights(const ModelConfig& config, const TensorNames& names, ModelWeights& weights, WeightVisitor& visitor);

}  // namespace avocet::model
