#include "model/model_weights.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/golden.h"
#include "support/published_configs.h"
#include "support/safetensors_writer.h"

namespace avocet::model {
namespace {

using test::SafetensorsFile;
using test::TempDir;
using test::TensorData;
using testing::ElementsAre;
using testing::HasSubstr;

std::unique_ptr<device::WorkerPool> Pool(int32_t num_workers) {
  device::WorkerPoolOptions options;
  options.cpus.assign(static_cast<size_t>(num_workers), -1);
  return device::WorkerPool::Create(options).value();
}

std::string ArenaBytes(const ModelWeights& weights) {
  return {reinterpret_cast<const char*>(weights.arena.data()), weights.arena.used_bytes()};
}

// --- A tiny model of either kind, with its own table of names -----------------------------------------------------------------------

enum class Experts { kStacked, kFused, kSplit };

ModelConfig TinyConfig(bool is_moe) {
  ModelConfig config;
  config.hidden = 12;
  config.num_layers = 2;
  config.layers = {LayerKind::kDeltaNet, LayerKind::kAttention};
  config.vocab_rows = 35;
  config.max_positions = 64;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 6;
  config.linear_key_heads = 2;
  config.linear_value_heads = 4;
  config.linear_key_dim = 4;
  config.linear_value_dim = 5;
  config.conv_kernel = 4;
  if (is_moe) {
    config.moe = MoeConfig{.num_experts = 3, .top_k = 2, .expert_intermediate = 7, .shared_intermediate = 10};
  } else {
    config.intermediate = 19;
  }
  return config;
}

// A tensor whose values depend on its name alone, so that every layout of a model holds the same numbers.
TensorData Tensor(const std::string& name, const std::string& value_key, std::vector<int64_t> shape, const std::string& dtype = "BF16") {
  int64_t count = 1;
  for (const int64_t dim : shape) count *= dim;
  std::mt19937 random(static_cast<uint32_t>(std::hash<std::string>()(value_key)));
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = (static_cast<float>(random() % 128) - 64.0f) / 64.0f;
  return {name, dtype, std::move(shape),
          dtype == "BF16"  ? test::Bf16Bytes(values)
          : dtype == "F16" ? test::F16Bytes(values)
                           : test::F32Bytes(values)};
}

class TinyTensors {
 public:
  TinyTensors(const ModelConfig& config, std::string prefix) : config_(config), prefix_(std::move(prefix)) {}

  std::vector<TensorData> Make(const std::vector<Experts>& experts) {
    const int64_t h = config_.hidden;
    Add("embed_tokens.weight", {config_.vocab_rows, h});
    for (int layer = 0; layer < config_.num_layers; ++layer) {
      const std::string l = "layers." + std::to_string(layer) + ".";
      Add(l + "input_layernorm.weight", {h});
      Add(l + "post_attention_layernorm.weight", {h});
      if (config_.layers[static_cast<size_t>(layer)] == LayerKind::kAttention) {
        const int64_t q = config_.num_heads * config_.head_dim;
        const int64_t kv = config_.num_kv_heads * config_.head_dim;
        Add(l + "self_attn.q_proj.weight", {2 * q, h});
        Add(l + "self_attn.k_proj.weight", {kv, h});
        Add(l + "self_attn.v_proj.weight", {kv, h});
        Add(l + "self_attn.o_proj.weight", {h, q});
        Add(l + "self_attn.q_norm.weight", {config_.head_dim});
        Add(l + "self_attn.k_norm.weight", {config_.head_dim});
      } else {
        const int64_t value = config_.linear_value_heads * config_.linear_value_dim;
        const int64_t conv = 2 * config_.linear_key_heads * config_.linear_key_dim + value;
        Add(l + "linear_attn.in_proj_qkv.weight", {conv, h});
        Add(l + "linear_attn.in_proj_z.weight", {value, h});
        Add(l + "linear_attn.in_proj_b.weight", {config_.linear_value_heads, h});
        Add(l + "linear_attn.in_proj_a.weight", {config_.linear_value_heads, h});
        Add(l + "linear_attn.conv1d.weight", {conv, 1, config_.conv_kernel});
        Add(l + "linear_attn.A_log", {config_.linear_value_heads}, "F32");
        Add(l + "linear_attn.dt_bias", {config_.linear_value_heads});
        Add(l + "linear_attn.norm.weight", {config_.linear_value_dim}, "F32");
        Add(l + "linear_attn.out_proj.weight", {h, value});
      }
      AddMlp(l + "mlp.", experts[static_cast<size_t>(layer) % experts.size()]);
    }
    Add("norm.weight", {h});
    if (!config_.tied_head) tensors_.push_back(Tensor("lm_head.weight", "lm_head", {config_.vocab_rows, h}));
    return std::move(tensors_);
  }

 private:
  void Add(const std::string& name, std::vector<int64_t> shape, const std::string& dtype = "BF16") {
    tensors_.push_back(Tensor(prefix_ + name, name, std::move(shape), dtype));
  }

  void AddMlp(const std::string& p, Experts experts) {
    const int64_t h = config_.hidden;
    if (!config_.moe) {
      Add(p + "gate_proj.weight", {config_.intermediate, h});
      Add(p + "up_proj.weight", {config_.intermediate, h});
      Add(p + "down_proj.weight", {h, config_.intermediate});
      return;
    }
    const int64_t width = config_.moe->expert_intermediate;
    const int64_t shared = config_.moe->shared_intermediate;
    Add(p + "gate.weight", {config_.moe->num_experts, h});
    Add(p + "shared_expert.gate_proj.weight", {shared, h});
    Add(p + "shared_expert.up_proj.weight", {shared, h});
    Add(p + "shared_expert.down_proj.weight", {h, shared});
    Add(p + "shared_expert_gate.weight", {1, h});
    std::string stacked_gate_up;
    std::string stacked_down;
    for (int e = 0; e < config_.moe->num_experts; ++e) {
      const std::string x = p + "experts." + std::to_string(e) + ".";
      TensorData gate = Tensor(prefix_ + x + "gate_proj.weight", x + "gate", {width, h});
      TensorData up = Tensor(prefix_ + x + "up_proj.weight", x + "up", {width, h});
      TensorData down = Tensor(prefix_ + x + "down_proj.weight", x + "down", {h, width});
      stacked_gate_up += gate.bytes + up.bytes;
      stacked_down += down.bytes;
      if (experts == Experts::kSplit) tensors_.insert(tensors_.end(), {gate, up});
      if (experts == Experts::kFused)
        tensors_.push_back({prefix_ + x + "gate_up_proj.weight", "BF16", {2 * width, h}, gate.bytes + up.bytes});
      if (experts != Experts::kStacked) tensors_.push_back(down);
    }
    if (experts != Experts::kStacked) return;
    tensors_.push_back({prefix_ + p + "experts.gate_up_proj", "BF16", {config_.moe->num_experts, 2 * width, h}, stacked_gate_up});
    tensors_.push_back({prefix_ + p + "experts.down_proj", "BF16", {config_.moe->num_experts, h, width}, stacked_down});
  }

  const ModelConfig& config_;
  std::string prefix_;
  std::vector<TensorData> tensors_;
};

std::vector<TensorData> MakeTiny(const ModelConfig& config, const std::string& prefix = "model.",
                                 std::vector<Experts> experts = {Experts::kStacked}) {
  return TinyTensors(config, prefix).Make(experts);
}

TensorData& Find(std::vector<TensorData>& tensors, const std::string& name) {
  const auto it = std::ranges::find(tensors, name, &TensorData::name);
  EXPECT_NE(it, tensors.end()) << name;
  return *it;
}

Result<ModelWeights> Load(const ModelConfig& config, const std::vector<TensorData>& tensors, LoadReport* report = nullptr,
                          weights::WeightPolicy policy = weights::WeightPolicy::kExact) {
  TempDir dir;
  dir.Write("model.safetensors", SafetensorsFile(tensors));
  LoadOptions options;
  options.policy = policy;
  return LoadModelWeights(config, dir.path(), *Pool(2), options, report);
}

std::string RefusalOf(const ModelConfig& config, const std::vector<TensorData>& tensors) {
  const auto loaded = Load(config, tensors);
  return loaded ? "accepted" : loaded.error().message;
}

// --- Names --------------------------------------------------------------------------------------------------------------------------

TEST(ModelWeights, ExpertLayouts_GiveTheSameBytes) {
  const ModelConfig config = TinyConfig(true);
  const auto stacked = Load(config, MakeTiny(config));
  ASSERT_TRUE(stacked) << stacked.error().message;
  for (const std::vector<Experts>& layout :
       {std::vector{Experts::kFused}, std::vector{Experts::kSplit}, std::vector{Experts::kSplit, Experts::kStacked},
        std::vector{Experts::kStacked, Experts::kFused}}) {
    const auto other = Load(config, MakeTiny(config, "model.", layout));
    ASSERT_TRUE(other) << other.error().message;
    EXPECT_TRUE(ArenaBytes(*other) == ArenaBytes(*stacked));
  }
}

TEST(ModelWeights, Prefixes_GiveTheSameBytes) {
  for (const bool is_moe : {false, true}) {
    const ModelConfig config = TinyConfig(is_moe);
    const auto plain = Load(config, MakeTiny(config, "model."));
    ASSERT_TRUE(plain) << plain.error().message;
    for (const std::string prefix : {"model.language_model.", ""}) {
      const auto other = Load(config, MakeTiny(config, prefix));
      ASSERT_TRUE(other) << other.error().message;
      EXPECT_TRUE(ArenaBytes(*other) == ArenaBytes(*plain));
    }
  }
  const ModelConfig config = TinyConfig(false);
  EXPECT_THAT(RefusalOf(config, MakeTiny(config, "transformer.")), HasSubstr("has no tensor embed_tokens.weight"));
}

TEST(ModelWeights, UnusedGroups_OneLineEach) {
  const ModelConfig config = TinyConfig(true);
  std::vector<TensorData> tensors = MakeTiny(config, "model.language_model.");
  tensors.push_back(Tensor("model.visual.blocks.0.norm1.weight", "v", {3}));
  tensors.push_back(Tensor("visual.pos_embed.weight", "v", {3}));
  tensors.push_back(Tensor("mtp.norm.weight", "m", {3}));
  LoadReport report;
  const auto loaded = Load(config, tensors, &report);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_THAT(report.unused, ElementsAre("1 mtp tensor", "2 vision tensors"));
  EXPECT_TRUE(report.conversions.empty());
  EXPECT_EQ(report.packed_bytes, loaded->arena.used_bytes());
  EXPECT_GT(report.file_bytes, 0u);
  EXPECT_GT(report.copy_gb_per_s, 0.0);
}

TEST(ModelWeights, TiedHead_SharesTheEmbedding) {
  ModelConfig config = TinyConfig(false);
  config.tied_head = true;
  std::vector<TensorData> tensors = MakeTiny(config);
  const auto tied = Load(config, tensors);
  ASSERT_TRUE(tied) << tied.error().message;
  EXPECT_EQ(tied->lm_head.data, tied->embedding.data);
  EXPECT_EQ(tied->lm_head.out_features, config.vocab_rows);
  // A stored head is ignored.
  tensors.push_back(Tensor("lm_head.weight", "other", {config.vocab_rows, config.hidden}));
  LoadReport report;
  const auto with_head = Load(config, tensors, &report);
  ASSERT_TRUE(with_head) << with_head.error().message;
  EXPECT_THAT(report.unused, ElementsAre("1 tied lm_head tensor"));
  EXPECT_TRUE(ArenaBytes(*with_head) == ArenaBytes(*tied));
  std::erase_if(tensors, [](const TensorData& t) { return t.name == "model.embed_tokens.weight"; });
  EXPECT_THAT(RefusalOf(config, tensors), HasSubstr("has no tensor embed_tokens.weight"));
}

TEST(ModelWeights, UntiedWithoutHead_Refused) {
  const ModelConfig config = TinyConfig(false);
  std::vector<TensorData> tensors = MakeTiny(config);
  std::erase_if(tensors, [](const TensorData& t) { return t.name == "lm_head.weight"; });
  EXPECT_THAT(RefusalOf(config, tensors), HasSubstr("has no tensor lm_head.weight, wanted with shape [35, 12]"));
}

TEST(ModelWeights, EveryTensorRemoved_IsNamed) {
  for (const bool is_moe : {false, true}) {
    const ModelConfig config = TinyConfig(is_moe);
    const std::vector<TensorData> all = MakeTiny(config, "model.", {Experts::kSplit});
    for (const TensorData& removed : all) {
      if (removed.name == "model.embed_tokens.weight") continue;
      // Without the tensor that shows the layout, the stacked names are wanted.
      const bool shows_layout = removed.name.ends_with("experts.0.gate_proj.weight");
      std::vector<TensorData> tensors = all;
      std::erase_if(tensors, [&](const TensorData& t) { return t.name == removed.name; });
      EXPECT_THAT(RefusalOf(config, tensors), HasSubstr("has no tensor " + (shows_layout ? removed.name.substr(0, 18) : removed.name)));
    }
  }
}

TEST(ModelWeights, EveryShapeChanged_IsNamed) {
  for (const bool is_moe : {false, true}) {
    const ModelConfig config = TinyConfig(is_moe);
    const std::vector<TensorData> all = MakeTiny(config);
    for (size_t i = 0; i < all.size(); ++i) {
      std::vector<TensorData> tensors = all;
      tensors[i] = Tensor(all[i].name, "x", [&] {
        std::vector<int64_t> shape = all[i].shape;
        shape.back() += 1;
        return shape;
      }());
      EXPECT_THAT(RefusalOf(config, tensors), HasSubstr("tensor " + all[i].name + " is BF16"));
    }
  }
}

TEST(ModelWeights, TensorOfAnotherModel_Named) {
  const ModelConfig config = TinyConfig(false);
  std::vector<TensorData> tensors = MakeTiny(config);
  tensors.push_back(Tensor("model.layers.0.self_attn.q_proj.bias", "x", {3}));
  EXPECT_THAT(RefusalOf(config, tensors), HasSubstr("tensor model.layers.0.self_attn.q_proj.bias (BF16 [3]) is not part of the model"));
}

TEST(ModelWeights, ConvolutionOfRankTwo_Accepted) {
  const ModelConfig config = TinyConfig(false);
  std::vector<TensorData> tensors = MakeTiny(config);
  const auto before = Load(config, tensors);
  Find(tensors, "model.layers.0.linear_attn.conv1d.weight")
      .shape.erase(Find(tensors, "model.layers.0.linear_attn.conv1d.weight").shape.begin() + 1);
  const auto after = Load(config, tensors);
  ASSERT_TRUE(after) << after.error().message;
  EXPECT_TRUE(ArenaBytes(*before) == ArenaBytes(*after));
}

TEST(ModelWeights, HalfAndSinglePrecision_LoadExactly) {
  const ModelConfig config = TinyConfig(true);
  const auto bf16 = Load(config, MakeTiny(config));
  ASSERT_TRUE(bf16);
  for (const std::string dtype : {"F16", "F32"}) {
    std::vector<TensorData> tensors = MakeTiny(config);
    for (TensorData& tensor : tensors) {
      // The values are multiples of 1/64 below 1: exact in all three types.
      std::vector<float> values(tensor.bytes.size() / (tensor.dtype == "F32" ? 4 : 2));
      for (size_t i = 0; i < values.size(); ++i) {
        uint16_t bits = 0;
        if (tensor.dtype == "F32") std::memcpy(&values[i], tensor.bytes.data() + 4 * i, 4);
        if (tensor.dtype == "BF16") std::memcpy(&bits, tensor.bytes.data() + 2 * i, 2), values[i] = ToF32(Bf16{bits});
      }
      tensor.dtype = dtype;
      tensor.bytes = dtype == "F16" ? test::F16Bytes(values) : test::F32Bytes(values);
    }
    LoadReport report;
    const auto exact = Load(config, tensors, &report);
    ASSERT_TRUE(exact) << exact.error().message;
    EXPECT_EQ(exact->layers[0].post_norm[3], bf16->layers[0].post_norm[3]);
    const auto& moe = std::get<MoeWeights>(exact->layers[1].mlp);
    EXPECT_EQ(moe.expert_down[2].format, ops::WeightFormat::kF32);
    EXPECT_EQ(ops::PackedElement(moe.expert_down[2], 4, 5),
              ops::PackedElement(std::get<MoeWeights>(bf16->layers[1].mlp).expert_down[2], 4, 5));
    EXPECT_EQ(report.conversions.size(), dtype == "F16" ? 1u : 0u);
    const auto rounded = Load(config, tensors, &report, weights::WeightPolicy::kBf16);
    ASSERT_TRUE(rounded) << rounded.error().message;
    EXPECT_TRUE(ArenaBytes(*rounded) == ArenaBytes(*bf16));
    EXPECT_THAT(report.conversions, ElementsAre(HasSubstr("matrices rounded to bf16")));
  }
}

TEST(ModelWeights, ExpertsOfTwoTypes_Refused) {
  const ModelConfig config = TinyConfig(true);
  std::vector<TensorData> tensors = MakeTiny(config, "model.", {Experts::kSplit});
  TensorData& down = Find(tensors, "model.layers.1.mlp.experts.2.down_proj.weight");
  down = Tensor(down.name, "x", down.shape, "F32");
  EXPECT_THAT(RefusalOf(config, tensors), HasSubstr("the experts of layer 1 have several dtypes"));
  EXPECT_TRUE(Load(config, tensors, nullptr, weights::WeightPolicy::kBf16));
}

TEST(ModelWeights, NoSharedExpert_NeedsNoSharedTensors) {
  ModelConfig config = TinyConfig(true);
  config.moe->shared_intermediate = 0;
  std::vector<TensorData> tensors = MakeTiny(config);
  std::erase_if(tensors, [](const TensorData& t) { return t.name.find("shared_expert") != std::string::npos; });
  const auto loaded = Load(config, tensors);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(std::get<MoeWeights>(loaded->layers[0].mlp).shared_gate.out_features, 0);
}

// A hundred thousand tensors open, match and pack; 397B in int8 has 276,000 and three seconds for them. Measured 0.35 s (release, one
// machine of two cores): the bound leaves room for sanitizers, not for a quadratic step.
TEST(ModelWeights, HundredThousandTensors_LoadInLinearTime) {
  ModelConfig config = TinyConfig(true);
  config.num_layers = 32;
  config.layers.clear();
  for (int i = 0; i < config.num_layers; ++i) config.layers.push_back(i % 4 == 3 ? LayerKind::kAttention : LayerKind::kDeltaNet);
  config.hidden = 2;
  config.moe->num_experts = 1024;
  config.moe->expert_intermediate = 1;
  TempDir dir;
  dir.Write("model.safetensors", SafetensorsFile(MakeTiny(config, "model.language_model.", {Experts::kSplit})));
  const auto pool = Pool(2);
  const auto start = std::chrono::steady_clock::now();
  const auto loaded = LoadModelWeights(config, dir.path(), *pool, {}, nullptr);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_LT(seconds, 10.0);
  RecordProperty("milliseconds", static_cast<int>(seconds * 1000));
}

// --- Golden checkpoints: every element where the network will look for it ------------------------------------------------------------

class GoldenWeights : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string dir = std::string(AVOCET_TEST_DATA) + "/golden/checkpoints/" + GetParam();
    for (const auto& entry : std::filesystem::directory_iterator(dir)) {
      if (entry.path().extension() == ".safetensors") source_.merge(test::ReadTensors(entry.path().string()));
    }
    config_ = LoadConfig(dir).value();
    auto loaded = LoadModelWeights(config_, dir, *Pool(2), {}, &report_);
    ASSERT_TRUE(loaded) << loaded.error().message;
    weights_ = std::move(*loaded);
    prefix_ = source_.contains("model.norm.weight") ? "model." : "model.language_model.";
  }
  const test::Tensor& Source(const std::string& name) {
    const auto it = source_.find(prefix_ + name);
    EXPECT_NE(it, source_.end()) << name;
    return it->second;
  }
  // Columns first.. of the weight are rows of `values`, all of them.
  void ExpectRows(const ops::PackedWeight& weight, int32_t first, const double* values, int64_t rows) {
    const int32_t in_features = weight.in_features;
    for (int64_t r = 0; r < rows; ++r) {
      for (int32_t k = 0; k < in_features; ++k) {
        ASSERT_EQ(static_cast<double>(ops::PackedElement(weight, first + static_cast<int32_t>(r), k)), values[r * in_features + k])
            << r << " " << k;
      }
    }
  }
  void ExpectWhole(const ops::PackedWeight& weight, const test::Tensor& tensor) {
    ASSERT_EQ(weight.out_features, tensor.rows());
    ASSERT_EQ(weight.in_features, tensor.cols());
    ExpectRows(weight, 0, tensor.values.data(), tensor.rows());
  }
  // Gate and up in alternating panels.
  void ExpectGateUp(const ops::PackedWeight& weight, const double* gate, const double* up, int64_t rows) {
    for (int64_t r = 0; r < rows; ++r) {
      const auto column = static_cast<int32_t>(r / 16 * 32 + r % 16);
      ExpectRows(weight, column, gate + r * weight.in_features, 1);
      ExpectRows(weight, column + 16, up + r * weight.in_features, 1);
    }
  }
  void ExpectVector(std::span<const float> vector, const test::Tensor& tensor, double shift) {
    ASSERT_EQ(vector.size(), tensor.values.size());
    for (size_t i = 0; i < vector.size(); ++i) ASSERT_EQ(vector[i], static_cast<float>(tensor.values[i] + shift));
  }
  void ExpectMixer(const std::string& l, const LayerWeights& layer);
  void ExpectMlp(const std::string& l, const LayerWeights& layer);

  std::map<std::string, test::Tensor> source_;
  std::string prefix_;
  ModelConfig config_;
  ModelWeights weights_;
  LoadReport report_;
};

void GoldenWeights::ExpectMixer(const std::string& l, const LayerWeights& layer) {
  if (const auto* w = std::get_if<AttentionWeights>(&layer.mixer)) {
    int32_t column = 0;
    for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
      const test::Tensor& tensor = Source(l + "self_attn." + name + ".weight");
      ExpectRows(w->qkv, column, tensor.values.data(), tensor.rows());
      column += static_cast<int32_t>(tensor.rows());
    }
    EXPECT_EQ(w->qkv.out_features, column);
    ExpectWhole(w->out, Source(l + "self_attn.o_proj.weight"));
    ExpectVector(w->q_norm, Source(l + "self_attn.q_norm.weight"), 1);
    ExpectVector(w->k_norm, Source(l + "self_attn.k_norm.weight"), 1);
    return;
  }
  const auto& w = std::get<DeltaNetWeights>(layer.mixer);
  const test::Tensor& qkv = Source(l + "linear_attn.in_proj_qkv.weight");
  const test::Tensor& z = Source(l + "linear_attn.in_proj_z.weight");
  ExpectRows(w.qkvz, 0, qkv.values.data(), qkv.rows());
  ExpectRows(w.qkvz, static_cast<int32_t>(qkv.rows()), z.values.data(), z.rows());
  const test::Tensor& b = Source(l + "linear_attn.in_proj_b.weight");
  const test::Tensor& a = Source(l + "linear_attn.in_proj_a.weight");
  ExpectRows(w.ba, 0, b.values.data(), b.rows());
  ExpectRows(w.ba, static_cast<int32_t>(b.rows()), a.values.data(), a.rows());
  ExpectWhole(w.out, Source(l + "linear_attn.out_proj.weight"));
  ExpectVector(w.conv, Source(l + "linear_attn.conv1d.weight"), 0);
  ExpectVector(w.a_log, Source(l + "linear_attn.A_log"), 0);
  ExpectVector(w.dt_bias, Source(l + "linear_attn.dt_bias"), 0);
  ExpectVector(w.norm, Source(l + "linear_attn.norm.weight"), 0);
}

void GoldenWeights::ExpectMlp(const std::string& l, const LayerWeights& layer) {
  const auto dense = [&](const std::string& p, const MlpWeights& w) {
    const test::Tensor& gate = Source(p + "gate_proj.weight");
    ExpectGateUp(w.gate_up, gate.values.data(), Source(p + "up_proj.weight").values.data(), gate.rows());
    ExpectWhole(w.down, Source(p + "down_proj.weight"));
  };
  if (const auto* w = std::get_if<MlpWeights>(&layer.mlp)) return dense(l + "mlp.", *w);
  const auto& w = std::get<MoeWeights>(layer.mlp);
  ExpectWhole(w.router, Source(l + "mlp.gate.weight"));
  dense(l + "mlp.shared_expert.", w.shared);
  ExpectWhole(w.shared_gate, Source(l + "mlp.shared_expert_gate.weight"));
  const int64_t width = config_.moe->expert_intermediate;
  const test::Tensor& gate_up = Source(l + "mlp.experts.gate_up_proj");
  const test::Tensor& down = Source(l + "mlp.experts.down_proj");
  ASSERT_EQ(w.expert_down.size(), static_cast<size_t>(gate_up.rows()));
  for (size_t e = 0; e < w.expert_down.size(); ++e) {
    const double* gate = gate_up.row(static_cast<int64_t>(e)).data();
    ExpectGateUp(w.expert_gate_up[e], gate, gate + width * config_.hidden, width);
    ExpectRows(w.expert_down[e], 0, down.row(static_cast<int64_t>(e)).data(), config_.hidden);
  }
}

TEST_P(GoldenWeights, EveryElement_IsTheSourceTensors) {
  ExpectWhole(weights_.embedding, Source("embed_tokens.weight"));
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    SCOPED_TRACE("layer " + std::to_string(i));
    const std::string l = "layers." + std::to_string(i) + ".";
    const LayerWeights& layer = weights_.layers[i];
    ExpectVector(layer.input_norm, Source(l + "input_layernorm.weight"), 1);
    ExpectVector(layer.post_norm, Source(l + "post_attention_layernorm.weight"), 1);
    ExpectMixer(l, layer);
    ExpectMlp(l, layer);
  }
  ExpectVector(weights_.final_norm, Source("norm.weight"), 1);
  if (config_.tied_head) {
    EXPECT_EQ(weights_.lm_head.data, weights_.embedding.data);
  } else {
    ExpectWhole(weights_.lm_head, source_.at("lm_head.weight"));
  }
  EXPECT_EQ(PackedModelBytes(config_, ops::WeightFormat::kBf16), weights_.arena.used_bytes());
}

TEST_P(GoldenWeights, UnusedTensors_Reported) {
  const std::map<std::string, std::vector<std::string>> wanted = {
      {"a-dense", {}}, {"b-moe-mtp", {"41 mtp tensors"}}, {"c-vl-moe-mtp", {"19 mtp tensors", "33 vision tensors"}}};
  EXPECT_EQ(report_.unused, wanted.at(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, GoldenWeights, testing::Values("a-dense", "b-moe-mtp", "c-vl-moe-mtp"), [](const auto& test) {
  std::string name = test.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

// --- Sizes --------------------------------------------------------------------------------------------------------------------------

TEST(ModelWeights, ParameterCounts_MatchTheSpecification) {
  for (const test::PublishedSize& size : test::kPublishedSizes) {
    const auto config = ParseConfig(test::PublishedConfig(size, test::ConfigLayout::kMultimodal).dump());
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(NumTextParameters(*config), size.text_parameters) << size.name;
  }
}

TEST(ModelWeights, PackedModelBytes_IsWhatLoadAllocates) {
  for (const bool is_moe : {false, true}) {
    const ModelConfig config = TinyConfig(is_moe);
    const auto bf16 = Load(config, MakeTiny(config));
    ASSERT_TRUE(bf16) << bf16.error().message;
    EXPECT_EQ(PackedModelBytes(config, ops::WeightFormat::kBf16), bf16->arena.used_bytes());
    const auto f32 = Load(config, MakeTiny(config), nullptr, weights::WeightPolicy::kF32);
    ASSERT_TRUE(f32) << f32.error().message;
    EXPECT_EQ(PackedModelBytes(config, ops::WeightFormat::kF32), f32->arena.used_bytes());
  }
}

// --- Dummy weights ------------------------------------------------------------------------------------------------------------------

ModelConfig DummyConfig() {
  ModelConfig config = TinyConfig(true);
  config.hidden = 257;  // an odd width: the padded k must be zero
  config.vocab_rows = 5000;
  config.moe->expert_intermediate = 37;
  return config;
}

ModelWeights Dummy(const ModelConfig& config, uint64_t seed, int32_t num_workers,
                   weights::WeightPolicy policy = weights::WeightPolicy::kExact) {
  LoadOptions options;
  options.policy = policy;
  LoadReport report;
  auto weights = MakeDummyWeights(config, seed, *Pool(num_workers), options, &report);
  EXPECT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(report.packed_bytes, weights->arena.used_bytes());
  return std::move(*weights);
}

TEST(DummyWeights, SeedAlone_DecidesEveryByte) {
  const ModelConfig config = DummyConfig();
  const std::string one = ArenaBytes(Dummy(config, 7, 1));
  EXPECT_TRUE(one == ArenaBytes(Dummy(config, 7, 2)));
  EXPECT_TRUE(one == ArenaBytes(Dummy(config, 7, 3)));
  EXPECT_FALSE(one == ArenaBytes(Dummy(config, 8, 2)));
  EXPECT_EQ(one.size(), PackedModelBytes(config, ops::WeightFormat::kBf16));
}

TEST(DummyWeights, BothFormats_HoldTheSameValues) {
  const ModelConfig config = DummyConfig();
  const ModelWeights narrow = Dummy(config, 7, 2);
  const ModelWeights wide = Dummy(config, 7, 2, weights::WeightPolicy::kF32);
  EXPECT_EQ(wide.arena.used_bytes(), PackedModelBytes(config, ops::WeightFormat::kF32));
  const auto expect_equal = [](const ops::PackedWeight& a, const ops::PackedWeight& b) {
    ASSERT_EQ(b.format, ops::WeightFormat::kF32);
    for (int32_t out = 0; out < a.out_features; out += 7) {
      for (int32_t in = 0; in < a.in_features; ++in) ASSERT_EQ(ops::PackedElement(a, out, in), ops::PackedElement(b, out, in));
    }
  };
  expect_equal(narrow.embedding, wide.embedding);
  expect_equal(std::get<MoeWeights>(narrow.layers[0].mlp).expert_gate_up[1], std::get<MoeWeights>(wide.layers[0].mlp).expert_gate_up[1]);
}

TEST(DummyWeights, Padding_IsZero) {
  const ModelConfig config = DummyConfig();
  const ModelWeights weights = Dummy(config, 7, 2);
  // Columns past the end of the last panel, and the k that rounds 257 up to 258: read through a wider description of the same bytes.
  ops::PackedWeight wide = weights.embedding;
  wide.out_features = wide.num_panels() * ops::kPanelCols;
  wide.in_features += 1;
  for (int32_t out = 0; out < wide.out_features; ++out) {
    ASSERT_EQ(ops::PackedElement(wide, out, 257), 0.0f);
    const bool is_padding = out >= config.vocab_rows;
    ASSERT_TRUE(!is_padding || ops::PackedElement(wide, out, 5) == 0.0f);
  }
  // 37 rows of gate: panels 0, 2 and 4; the last holds 5 columns. The same for up.
  const ops::PackedWeight& gate_up = std::get<MoeWeights>(weights.layers[0].mlp).expert_gate_up[0];
  for (int32_t out = 0; out < gate_up.out_features; ++out) {
    const bool is_padding = out / 32 * 16 + out % 16 >= 37;
    ASSERT_EQ(ops::PackedElement(gate_up, out, 11) == 0.0f, is_padding) << out;
  }
}

TEST(DummyWeights, Values_AreUniformWithUnitGain) {
  const ModelConfig config = DummyConfig();
  const ModelWeights weights = Dummy(config, 7, 2);
  double sum = 0;
  double squares = 0;
  std::vector<float> row(static_cast<size_t>(config.hidden));
  for (int32_t out = 0; out < config.vocab_rows; ++out) {
    ops::UnpackRow(weights.embedding, out, row.data());
    for (const float value : row) sum += value, squares += double{value} * value;
  }
  const double count = 5000.0 * 257;
  // 1.3 million values of variance 1/257: the mean has a deviation of 5.5e-5, the variance of 8e-4 of itself; five of each.
  EXPECT_NEAR(sum / count, 0, 3e-4);
  EXPECT_NEAR(squares / count * 257, 1, 4e-3);
  for (const float decay : std::get<DeltaNetWeights>(weights.layers[0].mixer).a_log) EXPECT_TRUE(decay >= 0 && decay <= 2.5f);
  for (const float norm : weights.final_norm) EXPECT_NEAR(norm, 1, 0.11);
}

TEST(DummyWeights, TiedHead_SharesTheEmbedding) {
  ModelConfig config = DummyConfig();
  config.tied_head = true;
  const ModelWeights weights = Dummy(config, 7, 2);
  EXPECT_EQ(weights.lm_head.data, weights.embedding.data);
}

TEST(DummyWeights, ModelLargerThanMemory_RefusedInOneLine) {
  ModelConfig config = TinyConfig(true);
  config.hidden = 65536;
  config.moe->num_experts = 4096;
  config.moe->expert_intermediate = 65536;
  const auto weights = MakeDummyWeights(config, 1, *Pool(1), {}, nullptr);
  ASSERT_FALSE(weights);
  EXPECT_THAT(weights.error().message, HasSubstr("weights"));
}

}  // namespace
}  // namespace avocet::model
