#include "model/weight_table.h"

#include <utility>

namespace avocet::model {
namespace {

using weights::MatrixRole;
using weights::MatrixSpec;
using weights::RowBlock;
using weights::RowOrder;

// A matrix that is one whole tensor.
MatrixSpec Whole(std::string tensor, int64_t rows, int32_t in_features, MatrixRole role = MatrixRole::kProduct) {
  return {in_features, RowOrder::kConcat, {{std::move(tensor), 0, rows}}, role};
}

class LayerWalk {
 public:
  LayerWalk(const ModelConfig& config, ExpertNaming experts, std::string prefix, WeightVisitor& visitor)
      : config_(config), experts_(experts), prefix_(std::move(prefix)), visitor_(visitor) {}

  Result<void> Visit(LayerKind kind, LayerWeights& layer) {
    AVOCET_TRY_VOID(Norm("input_layernorm.weight", config_.hidden, &layer.input_norm));
    if (kind == LayerKind::kAttention) {
      AVOCET_TRY_VOID(Attention(layer.mixer.emplace<AttentionWeights>()));
    } else {
      AVOCET_TRY_VOID(DeltaNet(layer.mixer.emplace<DeltaNetWeights>()));
    }
    AVOCET_TRY_VOID(Norm("post_attention_layernorm.weight", config_.hidden, &layer.post_norm));
    if (config_.moe) return Moe(*config_.moe, layer.mlp.emplace<MoeWeights>());
    return Mlp("mlp.", config_.intermediate, layer.mlp.emplace<MlpWeights>());
  }

 private:
  std::string Name(std::string_view suffix) const { return prefix_ + std::string(suffix); }

  Result<void> Norm(std::string_view suffix, int64_t width, std::span<const float>* out) {
    return visitor_.Vector({Name(suffix), {width}, VectorRole::kNorm}, out);
  }

  Result<void> Attention(AttentionWeights& w) {
    const int64_t q_rows = int64_t{config_.num_heads} * config_.head_dim;
    const int64_t kv_rows = int64_t{config_.num_kv_heads} * config_.head_dim;
    const MatrixSpec qkv = {config_.hidden,
                            RowOrder::kConcat,
                            {{Name("self_attn.q_proj.weight"), 0, 2 * q_rows},
                             {Name("self_attn.k_proj.weight"), 0, kv_rows},
                             {Name("self_attn.v_proj.weight"), 0, kv_rows}}};
    AVOCET_TRY_VOID(visitor_.Matrix(qkv, &w.qkv));
    AVOCET_TRY_VOID(visitor_.Matrix(Whole(Name("self_attn.o_proj.weight"), config_.hidden, static_cast<int32_t>(q_rows)), &w.out));
    AVOCET_TRY_VOID(Norm("self_attn.q_norm.weight", config_.head_dim, &w.q_norm));
    return Norm("self_attn.k_norm.weight", config_.head_dim, &w.k_norm);
  }

  Result<void> DeltaNet(DeltaNetWeights& w) {
    const int64_t value_heads = config_.linear_value_heads;
    const int64_t value_rows = value_heads * config_.linear_value_dim;
    const int64_t conv_rows = 2 * int64_t{config_.linear_key_heads} * config_.linear_key_dim + value_rows;
    const MatrixSpec qkvz = {
        config_.hidden,
        RowOrder::kConcat,
        {{Name("linear_attn.in_proj_qkv.weight"), 0, conv_rows}, {Name("linear_attn.in_proj_z.weight"), 0, value_rows}}};
    const MatrixSpec ba = {config_.hidden,
                           RowOrder::kConcat,
                           {{Name("linear_attn.in_proj_b.weight"), 0, value_heads}, {Name("linear_attn.in_proj_a.weight"), 0, value_heads}},
                           MatrixRole::kGate};
    AVOCET_TRY_VOID(visitor_.Matrix(qkvz, &w.qkvz));
    AVOCET_TRY_VOID(visitor_.Matrix(ba, &w.ba));
    AVOCET_TRY_VOID(visitor_.Matrix(Whole(Name("linear_attn.out_proj.weight"), config_.hidden, static_cast<int32_t>(value_rows)), &w.out));
    AVOCET_TRY_VOID(visitor_.Vector({Name("linear_attn.conv1d.weight"), {conv_rows, 1, config_.conv_kernel}, VectorRole::kConv}, &w.conv));
    AVOCET_TRY_VOID(visitor_.Vector({Name("linear_attn.A_log"), {value_heads}, VectorRole::kDecay}, &w.a_log));
    AVOCET_TRY_VOID(visitor_.Vector({Name("linear_attn.dt_bias"), {value_heads}, VectorRole::kTimeBias}, &w.dt_bias));
    return visitor_.Vector({Name("linear_attn.norm.weight"), {config_.linear_value_dim}, VectorRole::kGatedNorm}, &w.norm);
  }

  // prefix: "mlp." or one that ends with an expert.
  Result<void> Mlp(const std::string& prefix, int32_t intermediate, MlpWeights& w) {
    const MatrixSpec gate_up = {config_.hidden,
                                RowOrder::kGateUp,
                                {{Name(prefix + "gate_proj.weight"), 0, intermediate}, {Name(prefix + "up_proj.weight"), 0, intermediate}}};
    AVOCET_TRY_VOID(visitor_.Matrix(gate_up, &w.gate_up));
    return visitor_.Matrix(Whole(Name(prefix + "down_proj.weight"), config_.hidden, intermediate), &w.down);
  }

  Result<void> Moe(const MoeConfig& moe, MoeWeights& w) {
    AVOCET_TRY_VOID(visitor_.Matrix(Whole(Name("mlp.gate.weight"), moe.num_experts, config_.hidden, MatrixRole::kGate), &w.router));
    w.expert_gate_up.resize(static_cast<size_t>(moe.num_experts));
    w.expert_down.resize(static_cast<size_t>(moe.num_experts));
    for (int32_t e = 0; e < moe.num_experts; ++e) {
      const auto i = static_cast<size_t>(e);
      AVOCET_TRY_VOID(visitor_.Matrix(ExpertGateUp(moe, e), &w.expert_gate_up[i]));
      AVOCET_TRY_VOID(visitor_.Matrix(ExpertDown(moe, e), &w.expert_down[i]));
    }
    if (moe.shared_intermediate == 0) return {};
    AVOCET_TRY_VOID(Mlp("mlp.shared_expert.", moe.shared_intermediate, w.shared));
    return visitor_.Matrix(Whole(Name("mlp.shared_expert_gate.weight"), 1, config_.hidden, MatrixRole::kGate), &w.shared_gate);
  }

  // The first half of the rows of a joined tensor is gate, the second up.
  MatrixSpec ExpertGateUp(const MoeConfig& moe, int32_t expert) const {
    const int64_t width = moe.expert_intermediate;
    const int64_t hidden = config_.hidden;
    MatrixSpec spec = {config_.hidden, RowOrder::kGateUp, {}};
    if (experts_ == ExpertNaming::kSplit) {
      spec.blocks = {{Name(fmt::format("mlp.experts.{}.gate_proj.weight", expert)), 0, width},
                     {Name(fmt::format("mlp.experts.{}.up_proj.weight", expert)), 0, width}};
      return spec;
    }
    const bool is_stacked = experts_ == ExpertNaming::kStacked;
    const std::string tensor =
        is_stacked ? Name("mlp.experts.gate_up_proj") : Name(fmt::format("mlp.experts.{}.gate_up_proj.weight", expert));
    const std::vector<int64_t> shape =
        is_stacked ? std::vector<int64_t>{moe.num_experts, 2 * width, hidden} : std::vector<int64_t>{2 * width, hidden};
    const int64_t first = is_stacked ? expert * 2 * width : 0;
    spec.blocks = {{tensor, first, width, shape}, {tensor, first + width, width, shape}};
    return spec;
  }

  MatrixSpec ExpertDown(const MoeConfig& moe, int32_t expert) const {
    if (experts_ != ExpertNaming::kStacked) {
      return Whole(Name(fmt::format("mlp.experts.{}.down_proj.weight", expert)), config_.hidden, moe.expert_intermediate);
    }
    const int64_t hidden = config_.hidden;
    const std::vector<int64_t> shape = {moe.num_experts, hidden, moe.expert_intermediate};
    return {moe.expert_intermediate, RowOrder::kConcat, {{Name("mlp.experts.down_proj"), expert * hidden, hidden, shape}}};
  }

  const ModelConfig& config_;
  ExpertNaming experts_;
  std::string prefix_;
  WeightVisitor& visitor_;
};

Result<void> VisitDraft(const ModelConfig& config, const TensorNames& names, DraftWeights& draft, WeightVisitor& visitor) {
  const auto norm = [&](const char* name, std::span<const float>* out) {
    return visitor.Vector({name, {config.hidden}, VectorRole::kNorm}, out);
  };
  AVOCET_TRY_VOID(norm("mtp.pre_fc_norm_embedding.weight", &draft.embedding_norm));
  AVOCET_TRY_VOID(norm("mtp.pre_fc_norm_hidden.weight", &draft.hidden_norm));
  AVOCET_TRY_VOID(visitor.Matrix(Whole("mtp.fc.weight", config.hidden, 2 * config.hidden, MatrixRole::kGate), &draft.fc));
  AVOCET_TRY_VOID(LayerWalk(config, names.draft_experts, "mtp.layers.0.", visitor).Visit(LayerKind::kAttention, draft.layer));
  return norm("mtp.norm.weight", &draft.final_norm);
}

}  // namespace

int64_t VectorSpec::NumElements() const {
  int64_t count = 1;
  for (const int64_t dim : shape) count *= dim;
  return count;
}

Result<void> VisitWeights(const ModelConfig& config, const TensorNames& names, ModelWeights& weights, WeightVisitor& visitor) {
  // A tied embedding is the head too; one of its own is only looked up.
  const MatrixRole embedding_role = config.tied_head ? MatrixRole::kProduct : MatrixRole::kGate;
  AVOCET_TRY_VOID(
      visitor.Matrix(Whole(names.prefix + "embed_tokens.weight", config.vocab_rows, config.hidden, embedding_role), &weights.embedding));
  weights.layers.resize(static_cast<size_t>(config.num_layers));
  for (int32_t i = 0; i < config.num_layers; ++i) {
    const auto index = static_cast<size_t>(i);
    const std::string prefix = fmt::format("{}layers.{}.", names.prefix, i);
    AVOCET_TRY_VOID(LayerWalk(config, names.ExpertsOf(i), prefix, visitor).Visit(config.layers[index], weights.layers[index]));
  }
  AVOCET_TRY_VOID(visitor.Vector({names.prefix + "norm.weight", {config.hidden}, VectorRole::kNorm}, &weights.final_norm));
  if (config.num_drafts > 0) AVOCET_TRY_VOID(VisitDraft(config, names, weights.draft.emplace(), visitor));
  if (config.tied_head) return {};
  return visitor.Matrix(Whole("lm_head.weight", config.vocab_rows, config.hidden), &weights.lm_head);
}

}  // namespace avocet::model
