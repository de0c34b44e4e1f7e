// The reference family: plain loops, double accumulation, the formula as the paper writes it. The truth that every other family is
// swept against, and what AVOCET_ISA=ref runs. Deliberately written differently from isa/: no blocks, no shared helpers.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/bf16.h"
#include "device/isa.h"
#include "ops/kernel_table.h"

namespace avocet::ops {
namespace {

double ReadBf16(const std::byte* p) {
  uint16_t bits;
  std::memcpy(&bits, p, 2);
  return static_cast<double>(ToF32(Bf16{bits}));
}

double ReadF32(const std::byte* p) {
  float value;
  std::memcpy(&value, p, 4);
  return static_cast<double>(value);
}

void Write(InputType type, std::byte* row, int32_t i, double value) {
  const auto narrow = static_cast<float>(value);
  if (type == InputType::kF32) {
    std::memcpy(row + static_cast<size_t>(i) * 4, &narrow, 4);
  } else {
    const uint16_t bits = ToBf16(narrow).bits;
    std::memcpy(row + static_cast<size_t>(i) * 2, &bits, 2);
  }
}

double Sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}
double Silu(double x) {
  return x * Sigmoid(x);
}

template <InputType kInput>
double Input(const LinearArgs& a, int32_t row, int32_t k) {
  const int32_t source = a.row_index != nullptr ? a.row_index[row] : row;
  const std::byte* x = a.x + static_cast<size_t>(source) * a.x_row_bytes;
  return kInput == InputType::kF32 ? ReadF32(x + static_cast<size_t>(k) * 4) : ReadBf16(x + static_cast<size_t>(k) * 2);
}

template <WeightFormat kWeight>
double Weight(const LinearArgs& a, int32_t out, int32_t k) {
  const std::byte* panel = a.panels + static_cast<size_t>(out / 16) * a.panel_bytes;
  const auto col = static_cast<size_t>(out % 16);
  if (kWeight == WeightFormat::kF32) return ReadF32(panel + (static_cast<size_t>(k) * 16 + col) * 4);
  return ReadBf16(panel + (static_cast<size_t>(k / 2) * 16 + col) * 4 + static_cast<size_t>(k % 2) * 2);
}

template <InputType kInput, WeightFormat kWeight>
double Product(const LinearArgs& a, int32_t row, int32_t out) {
  double sum = 0;
  for (int32_t k = 0; k < a.in_features; ++k) sum += Input<kInput>(a, row, k) * Weight<kWeight>(a, out, k);
  return sum;
}

template <InputType kInput, WeightFormat kWeight>
void Linear(const LinearArgs& a) {
  for (int32_t r = 0; r < a.rows; ++r) {
    auto* y = reinterpret_cast<float*>(a.out + static_cast<size_t>(r) * a.out_row_bytes);
    for (int32_t n = 0; n < std::min(a.num_panels * 16, a.out_cols); ++n) {
      const auto value = static_cast<float>(Product<kInput, kWeight>(a, r, n));
      y[n] = a.accumulate == Accumulate::kAdd ? y[n] + value : value;
    }
  }
}

template <InputType kInput, WeightFormat kWeight>
void SwiGlu(const LinearArgs& a) {
  for (int32_t r = 0; r < a.rows; ++r) {
    for (int32_t n = 0; n < std::min(a.num_panels * 8, a.out_cols); ++n) {
      const int32_t gate = n / 16 * 32 + n % 16;
      const double value = Silu(Product<kInput, kWeight>(a, r, gate)) * Product<kInput, kWeight>(a, r, gate + 16);
      Write(a.out_type, a.out + static_cast<size_t>(r) * a.out_row_bytes, n, value);
    }
  }
}

// The exact sum, whatever the family: int64 here, int32 there.
float Int8Product(const LinearArgs& a, int32_t row, int32_t out) {
  const int32_t source = a.row_index != nullptr ? a.row_index[row] : row;
  const std::byte* x = a.x + static_cast<size_t>(source) * a.x_row_bytes;
  const std::byte* panel = a.panels + static_cast<size_t>(out / 16) * a.panel_bytes;
  const auto col = static_cast<size_t>(out % 16);
  int64_t sum = 0;
  for (int32_t k = 0; k < a.in_features; ++k) {
    const auto weight = static_cast<int8_t>(panel[(static_cast<size_t>(k / 4) * 16 + col) * 4 + static_cast<size_t>(k % 4)]);
    sum += (std::to_integer<int64_t>(x[k])) * weight;
  }
  int32_t bias;
  float scale;
  std::memcpy(&scale, panel + a.panel_bytes - 128 + col * 4, 4);
  std::memcpy(&bias, panel + a.panel_bytes - 64 + col * 4, 4);
  return static_cast<float>(static_cast<int32_t>(sum + bias)) * a.row_scales[source] * scale;
}

void LinearInt8(const LinearArgs& a) {
  for (int32_t r = 0; r < a.rows; ++r) {
    auto* y = reinterpret_cast<float*>(a.out + static_cast<size_t>(r) * a.out_row_bytes);
    for (int32_t n = 0; n < std::min(a.num_panels * 16, a.out_cols); ++n) {
      const float value = Int8Product(a, r, n);
      y[n] = a.accumulate == Accumulate::kAdd ? y[n] + value : value;
    }
  }
}

void SwiGluInt8(const LinearArgs& a) {
  for (int32_t r = 0; r < a.rows; ++r) {
    for (int32_t n = 0; n < std::min(a.num_panels * 8, a.out_cols); ++n) {
      const int32_t gate = n / 16 * 32 + n % 16;
      const double value = Silu(static_cast<double>(Int8Product(a, r, gate))) * static_cast<double>(Int8Product(a, r, gate + 16));
      Write(a.out_type, a.out + static_cast<size_t>(r) * a.out_row_bytes, n, value);
    }
  }
}

void Quantize(const QuantizeArgs& a) {
  float scale = a.input.scale;
  if (a.input.is_dynamic()) {
    float largest = 0;
    for (int32_t i = 0; i < a.size; ++i) largest = std::fmax(largest, std::fabs(a.x[i]));
    scale = largest > 0 ? largest / 127.0f : 1.0f;
  }
  for (int32_t i = 0; i < a.size; ++i) {
    const float q = std::nearbyint(a.x[i] / scale + a.input.offset);
    a.out[i] = static_cast<std::byte>(std::isnan(q) ? 0 : static_cast<int>(std::clamp(q, -128.0f, 127.0f)) + 128);
  }
  *a.row_scale = a.input.is_dynamic() ? scale : 1.0f;
}

double CachedK(const AttentionArgs& a, int32_t token, int32_t i) {
  const std::byte* k = a.k[token / a.page_tokens];
  const auto t = static_cast<size_t>(token % a.page_tokens);
  const auto dim = static_cast<size_t>(a.head_dim);
  const auto d = static_cast<size_t>(i);
  if (a.type == KvType::kF32) return ReadF32(k + (t / 16 * dim * 16 + d * 16 + t % 16) * 4);
  return ReadBf16(k + (t / 16 * dim * 16 + (d / 2 * 16 + t % 16) * 2 + d % 2) * 2);
}

double CachedV(const AttentionArgs& a, int32_t token, int32_t i) {
  const std::byte* v = a.v[token / a.page_tokens];
  const size_t element = static_cast<size_t>(token % a.page_tokens) * static_cast<size_t>(a.head_dim) + static_cast<size_t>(i);
  return a.type == KvType::kF32 ? ReadF32(v + element * 4) : ReadBf16(v + element * 2);
}

void AttentionSplit(const AttentionArgs& a) {
  for (int32_t q = 0; q < a.num_queries; ++q) {
    double max = -INFINITY;
    std::vector<double> scores(static_cast<size_t>(a.limits[q]));
    for (int32_t t = 0; t < a.limits[q]; ++t) {
      double score = 0;
      for (int32_t i = 0; i < a.head_dim; ++i) score += static_cast<double>(a.queries[q][i]) * CachedK(a, t, i);
      scores[static_cast<size_t>(t)] = score;
      max = std::max(max, score);
    }
    double sum = 0;
    for (double& score : scores) sum += score = std::exp(score - max);
    for (int32_t i = 0; i < a.head_dim; ++i) {
      double value = 0;
      for (int32_t t = 0; t < a.limits[q]; ++t) value += scores[static_cast<size_t>(t)] * CachedV(a, t, i);
      a.out[static_cast<ptrdiff_t>(q) * a.head_dim + i] = static_cast<float>(value);
    }
    a.max[q] = static_cast<float>(max);
    a.sum[q] = static_cast<float>(sum);
  }
}

void AttentionMerge(const MergeArgs& a) {
  const double top = std::max(static_cast<double>(*a.max), static_cast<double>(a.split_max));
  const double before = std::exp(static_cast<double>(*a.max) - top);
  const double now = std::exp(static_cast<double>(a.split_max) - top);
  for (int32_t i = 0; i < a.size; ++i) {
    a.acc[i] = static_cast<float>(static_cast<double>(a.acc[i]) * before + static_cast<double>(a.split_acc[i]) * now);
  }
  *a.sum = static_cast<float>(static_cast<double>(*a.sum) * before + static_cast<double>(a.split_sum) * now);
  *a.max = static_cast<float>(top);
}

void AttentionGate(const GateArgs& a) {
  for (int32_t i = 0; i < a.size; ++i) {
    Write(a.out_type, a.out, i, static_cast<double>(a.acc[i]) / static_cast<double>(a.sum) * Sigmoid(static_cast<double>(a.gate[i])));
  }
}

// model.md 2.9, step 7, as written: decay, read, correct, write, read.
void DeltaRule(const DeltaRuleArgs& a) {
  const auto state = [&a](int32_t i, int32_t v) -> float& {
    return a.state[(static_cast<ptrdiff_t>(v / 16) * a.key_dim + i) * 16 + v % 16];
  };
  for (int32_t t = 0; t < a.num_tokens; ++t) {
    const float* k = a.k + static_cast<ptrdiff_t>(t) * a.qk_ld;
    const float* q = a.q + static_cast<ptrdiff_t>(t) * a.qk_ld;
    for (int32_t v = 0; v < a.value_dim; ++v) {
      double memory = 0;
      for (int32_t i = 0; i < a.key_dim; ++i) {
        memory += static_cast<double>(a.decay[t]) * static_cast<double>(state(i, v)) * static_cast<double>(k[i]);
      }
      const double delta = static_cast<double>(a.beta[t]) * (static_cast<double>(a.v[static_cast<ptrdiff_t>(t) * a.v_ld + v]) - memory);
      double out = 0;
      for (int32_t i = 0; i < a.key_dim; ++i) {
        const double updated = static_cast<double>(a.decay[t]) * static_cast<double>(state(i, v)) + static_cast<double>(k[i]) * delta;
        out += updated * static_cast<double>(q[i]);
        state(i, v) = static_cast<float>(updated);
      }
      a.out[static_cast<ptrdiff_t>(t) * a.out_ld + v] = static_cast<float>(out);
    }
  }
}

void ConvSilu(const ConvArgs& a) {
  for (int32_t t = 0; t < a.num_tokens; ++t) {
    for (int32_t c = 0; c < a.channels; ++c) {
      double sum = 0;
      for (int32_t j = 0; j < a.taps; ++j) {
        const int32_t source = t - a.taps + 1 + j;
        const float x = source >= 0 ? a.x[static_cast<ptrdiff_t>(source) * a.x_ld + c] : a.history[source + a.taps - 1][c];
        sum += static_cast<double>(a.weight[static_cast<ptrdiff_t>(c) * a.taps + j]) * static_cast<double>(x);
      }
      a.out[static_cast<ptrdiff_t>(t) * a.out_ld + c] = static_cast<float>(Silu(sum));
    }
  }
}

void Norm(const NormArgs& a) {
  double squares = 0;
  for (int32_t i = 0; i < a.size; ++i) squares += static_cast<double>(a.x[i]) * static_cast<double>(a.x[i]);
  const double scale = 1.0 / std::sqrt(squares / a.size + static_cast<double>(a.eps));
  for (int32_t i = 0; i < a.size; ++i) {
    const double gate = a.gate != nullptr ? Silu(static_cast<double>(a.gate[i])) : 1.0;
    Write(a.out_type, a.out, i, static_cast<double>(a.x[i]) * scale * static_cast<double>(a.weight[i]) * gate);
  }
}

void Combine(const CombineArgs& a) {
  for (int32_t i = 0; i < a.size; ++i) {
    double sum = 0;
    for (int32_t j = 0; j < a.count; ++j) sum += static_cast<double>(a.weights[j]) * static_cast<double>(a.rows[j][i]);
    if (a.shared != nullptr) sum += static_cast<double>(a.shared_scale) * static_cast<double>(a.shared[i]);
    a.hidden[i] = static_cast<float>(static_cast<double>(a.hidden[i]) + sum);
  }
}

float Dot(const float* a, const float* b, int32_t size) {
  double sum = 0;
  for (int32_t i = 0; i < size; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return static_cast<float>(sum);
}

void Scale(float* x, int32_t size, float scale) {
  for (int32_t i = 0; i < size; ++i) x[i] *= scale;
}

void ArgMax(const float* x, int32_t size, float* max, int32_t* index) {
  *max = -INFINITY;
  *index = -1;
  for (int32_t i = 0; i < size; ++i) {
    if (x[i] > *max || (*index < 0 && x[i] == *max)) {
      *max = x[i];
      *index = i;
    }
  }
}

float SumExp(const float* x, int32_t size, float max) {
  double sum = 0;
  for (int32_t i = 0; i < size; ++i) sum += std::exp(static_cast<double>(x[i]) - static_cast<double>(max));
  return static_cast<float>(sum);
}

}  // namespace

const KernelTable kRefKernels = {
    .isa = device::Isa::kRef,
    .name = "ref",
    .product_input_type = InputType::kF32,
    .linear_f32_bf16 = Linear<InputType::kF32, WeightFormat::kBf16>,
    .linear_f32_f32 = Linear<InputType::kF32, WeightFormat::kF32>,
    .linear_bf16_bf16 = Linear<InputType::kBf16, WeightFormat::kBf16>,
    .linear_int8_int8 = LinearInt8,
    .swiglu_f32_bf16 = SwiGlu<InputType::kF32, WeightFormat::kBf16>,
    .swiglu_f32_f32 = SwiGlu<InputType::kF32, WeightFormat::kF32>,
    .swiglu_bf16_bf16 = SwiGlu<InputType::kBf16, WeightFormat::kBf16>,
    .swiglu_int8_int8 = SwiGluInt8,
    .quantize = Quantize,
    .attention_split = AttentionSplit,
    .attention_merge = AttentionMerge,
    .attention_gate = AttentionGate,
    .delta_rule = DeltaRule,
    .conv_silu = ConvSilu,
    .norm = Norm,
    .combine = Combine,
    .dot = Dot,
    .scale = Scale,
    .argmax = ArgMax,
    .sum_exp = SumExp,
};

}  // namespace avocet::ops
