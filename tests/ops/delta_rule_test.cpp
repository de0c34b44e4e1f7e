// The delta-net mixer: kernels of every family against ref, the operation against the formula of model.md 2.9 in double, and NUM-1:
// the same bits and states for any chunking, company and number of workers.
#include "ops/delta_rule.h"

#include <algorithm>

#include "ops_test_util.h"

namespace avocet::ops {
namespace {

using DeltaRuleTest = FamilyTest;
AVOCET_ALL_FAMILIES(DeltaRuleTest);

size_t Padded16(int32_t n) {
  return static_cast<size_t>((n + 15) / 16 * 16);
}

TEST_P(DeltaRuleTest, Num2_KernelOfAnyShape_AgreesWithRef) {
  for (const auto& [key_dim, value_dim, tokens] :
       {std::tuple{128, 128, 1}, {128, 128, 70}, {32, 32, 5}, {64, 48, 9}, {7, 5, 33}, {1, 1, 3}, {33, 17, 8}, {16, 100, 4}}) {
    Random random(static_cast<uint64_t>(key_dim * 1000 + value_dim));
    const auto t = static_cast<size_t>(tokens), kd = static_cast<size_t>(key_dim), vd = static_cast<size_t>(value_dim);
    const size_t qk_ld = kd + 3, v_ld = vd + 1, out_ld = vd + 2;
    // |k| = 1, |q| = key_dim^-1/2 as the operation delivers them.
    Guarded<float> q(t * qk_ld), k(t * qk_ld), v(t * v_ld), decay(t), beta(t), kq(t);
    for (size_t i = 0; i < t; ++i) {
      double qq = 0, kk = 0;
      for (size_t j = 0; j < kd; ++j) {
        q[i * qk_ld + j] = random.Uniform(-1, 1);
        k[i * qk_ld + j] = random.Uniform(-1, 1);
        qq += static_cast<double>(q[i * qk_ld + j]) * static_cast<double>(q[i * qk_ld + j]);
        kk += static_cast<double>(k[i * qk_ld + j]) * static_cast<double>(k[i * qk_ld + j]);
      }
      double dot = 0;
      for (size_t j = 0; j < kd; ++j) {
        q[i * qk_ld + j] *= static_cast<float>(1 / std::sqrt(qq * key_dim));
        k[i * qk_ld + j] *= static_cast<float>(1 / std::sqrt(kk));
        dot += static_cast<double>(q[i * qk_ld + j]) * static_cast<double>(k[i * qk_ld + j]);
      }
      kq[i] = static_cast<float>(dot);
      decay[i] = random.Uniform(0.5f, 1);
      beta[i] = random.Uniform(0, 1);
      for (size_t j = 0; j < vd; ++j) v[i * v_ld + j] = random.Uniform(-1, 1);
    }
    const std::vector<float> start = random.Floats(Padded16(value_dim) * kd);
    const auto run = [&](const KernelTable& table, std::vector<float>& state) {
      Guarded<float> memory(state.size(), 0), out(t * out_ld);
      for (size_t i = 0; i < t * out_ld; ++i) out[i] = -7.0f;
      std::copy(start.begin(), start.end(), memory.data());
      table.delta_rule({.num_tokens = tokens,
                        .key_dim = key_dim,
                        .value_dim = value_dim,
                        .q = q.data(),
                        .k = k.data(),
                        .qk_ld = static_cast<int32_t>(qk_ld),
                        .v = v.data(),
                        .v_ld = static_cast<int32_t>(v_ld),
                        .decay = decay.data(),
                        .beta = beta.data(),
                        .kq = kq.data(),
                        .state = memory.data(),
                        .out = out.data(),
                        .out_ld = static_cast<int32_t>(out_ld)});
      EXPECT_TRUE(memory.PoisonIsIntact() && out.PoisonIsIntact());
      std::copy_n(memory.data(), state.size(), state.begin());
      return std::vector<float>(out.data(), out.data() + t * out_ld);
    };
    std::vector<float> want_state(start.size()), got_state(start.size());
    const std::vector<float> want = run(kRefKernels, want_state);
    const std::vector<float> got = run(kernels(), got_state);
    // A step is a contraction: errors of single steps add up at most. Columns of the state have norms below sqrt(key_dim) + 1 / (1 -
    // decay); one step errs by the roundings of a sum over key_dim and a few more, times that norm.
    const double column = std::sqrt(key_dim) + 4;
    const double step = (key_dim + 8) * kUnit * column;
    Worst worst;
    for (size_t i = 0; i < t; ++i) {
      for (size_t j = 0; j < out_ld; ++j) {
        const std::string where = fmt::format("token {} column {}", i, j);
        worst.Compare(got[i * out_ld + j], want[i * out_ld + j], j < vd ? static_cast<double>(i + 1) * step : 1e-30, where);
      }
    }
    for (size_t slice = 0; slice < Padded16(value_dim) / 16; ++slice) {
      for (size_t i = 0; i < kd; ++i) {
        for (size_t lane = 0; lane < 16; ++lane) {
          const size_t at = (slice * kd + i) * 16 + lane;
          if (slice * 16 + lane < vd)
            worst.Compare(got_state[at], want_state[at], tokens * step, fmt::format("state {},{}", i, slice * 16 + lane));
        }
      }
    }
    ASSERT_LE(worst.ratio(), 1.0) << kernels().name << " " << key_dim << "x" << value_dim << " " << tokens << " tokens: " << worst.text();
  }
}

TEST_P(DeltaRuleTest, Num2_Convolution_AgreesWithRefForEveryWidth) {
  Random random(41);
  for (int32_t channels : {1, 2, 7, 15, 16, 17, 31, 32, 33, 100}) {
    for (const auto& [taps, tokens] : {std::pair{4, 1}, {4, 2}, {4, 3}, {4, 20}, {2, 5}, {1, 2}, {7, 4}, {16, 3}}) {
      const auto c = static_cast<size_t>(channels), t = static_cast<size_t>(tokens), before = static_cast<size_t>(taps - 1);
      const std::vector<float> x = random.Floats(t * (c + 3)), history = random.Floats(before * (c + 1)),
                               weight = random.Floats(c * static_cast<size_t>(taps));
      std::vector<const float*> rows;
      for (size_t j = 0; j < before; ++j) rows.push_back(history.data() + j * (c + 1));
      const auto run = [&](const KernelTable& table) {
        Guarded<float> out(t * (c + 2));
        for (size_t i = 0; i < out.count(); ++i) out[i] = 3.0f;
        table.conv_silu({.num_tokens = tokens,
                         .channels = channels,
                         .taps = taps,
                         .x = x.data(),
                         .x_ld = channels + 3,
                         .history = rows.data(),
                         .weight = weight.data(),
                         .out = out.data(),
                         .out_ld = channels + 2});
        EXPECT_TRUE(out.PoisonIsIntact());
        return std::vector<float>(out.data(), out.data() + out.count());
      };
      const std::vector<float> want = run(kRefKernels), got = run(kernels());
      // Sums of `taps` products below 1, silu's slope is below 1.1, its own error 4 ulps of a value below `taps`.
      for (size_t i = 0; i < want.size(); ++i)
        ASSERT_NEAR(got[i], want[i], (1.1 * (taps + 2) + 8) * taps * kUnit) << channels << " " << taps;
    }
  }
}

// A mixer with random parameters and sequences; Advance() runs some rows of some sequences in one step.
class Mixer {
 public:
  Mixer(const KernelTable& kernels, const DeltaNetShape& shape, InputType out_type, int32_t workers, std::vector<int32_t> lengths)
      : kernels_(kernels), shape_(shape), out_type_(out_type), workers_(workers), pool_(MakePool(workers)) {
    Random random(88);
    const auto heads = static_cast<size_t>(shape.num_value_heads);
    conv_ = random.Floats(static_cast<size_t>(shape.conv_dim()) * static_cast<size_t>(shape.conv_kernel));
    a_log_ = random.Floats(heads, -2, 2);
    dt_bias_ = random.Floats(heads, -3, 1);
    dt_bias_[0] = 30.0f;  // softplus's linear part
    norm_ = random.Floats(static_cast<size_t>(shape.value_dim), 0.5f, 1.5f);
    for (const int32_t length : lengths) {
      qkvz_.push_back(random.Floats(static_cast<size_t>(length) * Cols()));
      // Five tokens of every ten are so small that the epsilon of the L2 norms counts.
      for (size_t i = 0; i < qkvz_.back().size(); ++i) {
        if (i / Cols() / 5 % 2 == 1) qkvz_.back()[i] *= 1e-3f;
      }
      ba_.push_back(random.Floats(static_cast<size_t>(length) * 2 * heads, -4, 4));
      // Position 0 starts from zero whatever the memory holds.
      recurrent_.emplace_back(RecurrentStateFloats(shape), std::numeric_limits<float>::quiet_NaN());
      conv_state_.emplace_back(ConvStateFloats(shape), std::numeric_limits<float>::quiet_NaN());
      out_.emplace_back(static_cast<size_t>(length));
    }
  }

  struct Part {
    size_t sequence;
    int32_t first;
    int32_t count;
    int32_t drafts = 0;   // of count
    int32_t pending = 0;  // accepted ones of the part before
  };

  void Advance(const std::vector<Part>& parts) {
    drafts_.resize(out_.size());
    std::vector<float> qkvz, ba;
    std::vector<DeltaNetSpan> spans;
    int32_t rows = 0;
    const size_t gates = 2 * static_cast<size_t>(shape_.num_value_heads);
    for (const Part& part : parts) {
      const auto first = static_cast<size_t>(part.first), end = static_cast<size_t>(part.first + part.count);
      qkvz.insert(qkvz.end(), qkvz_[part.sequence].data() + first * Cols(), qkvz_[part.sequence].data() + end * Cols());
      ba.insert(ba.end(), ba_[part.sequence].data() + first * gates, ba_[part.sequence].data() + end * gates);
      drafts_[part.sequence].resize(16 * DraftRowFloats(shape_));
      spans.push_back({.row_begin = rows,
                       .num_rows = part.count,
                       .first_position = part.first,
                       .num_drafts = part.drafts,
                       .num_pending = part.pending,
                       .recurrent = recurrent_[part.sequence].data(),
                       .conv = conv_state_[part.sequence].data(),
                       .drafts = drafts_[part.sequence].data()});
      rows += part.count;
    }
    Guarded<std::byte> scratch(DeltaNetScratchBytes(shape_, rows, workers_));
    const int32_t cols = shape_.total_value_dim();
    const InputMatrix out(out_type_, rows, cols, std::vector<float>(static_cast<size_t>(rows) * static_cast<size_t>(cols)));
    const DeltaNetParams params{conv_, a_log_, dt_bias_, norm_, 1e-6f};
    pool_->Run([&](device::Worker& worker) {
      DeltaNet(worker, kernels_, shape_, params, MatView<const float>(qkvz.data(), rows, static_cast<int32_t>(Cols())),
               MatView<const float>(ba.data(), rows, static_cast<int32_t>(gates)), spans, {scratch.data(), scratch.count()},
               out.writable());
    });
    EXPECT_TRUE(scratch.PoisonIsIntact());
    int32_t row = 0;
    for (const Part& part : parts) {
      for (int32_t i = 0; i < part.count; ++i, ++row) out_[part.sequence][static_cast<size_t>(part.first + i)] = out.Row(row);
    }
  }

  const std::vector<std::vector<std::vector<std::byte>>>& out() const { return out_; }
  // As bits: the padding of the state may hold anything, the rest is compared.
  std::vector<std::vector<float>> States() const {
    std::vector<std::vector<float>> states;
    for (size_t s = 0; s < recurrent_.size(); ++s) {
      std::vector<float> plain(static_cast<size_t>(shape_.key_dim) * static_cast<size_t>(shape_.value_dim));
      for (int32_t head = 0; head < shape_.num_value_heads; ++head) {
        UnpackRecurrentState(shape_, recurrent_[s].data(), head, plain.data());
        states.push_back(plain);
      }
      states.push_back(conv_state_[s]);
    }
    return states;
  }

  // All rows of a sequence by the formula, in double: [length][total_value_dim].
  std::vector<std::vector<double>> Formula(size_t sequence) const {
    const auto length = static_cast<int32_t>(out_[sequence].size());
    std::vector<std::vector<double>> rows(static_cast<size_t>(length), std::vector<double>(static_cast<size_t>(shape_.total_value_dim())));
    for (int32_t head = 0; head < shape_.num_value_heads; ++head) FormulaOfHead(sequence, head, rows);
    return rows;
  }

 private:
  size_t Cols() const { return static_cast<size_t>(shape_.conv_dim() + shape_.total_value_dim()); }

  double Raw(size_t sequence, int32_t t, int32_t channel) const {
    return t < 0 ? 0 : static_cast<double>(qkvz_[sequence][static_cast<size_t>(t) * Cols() + static_cast<size_t>(channel)]);
  }

  // Convolution and SiLU of `count` channels at token t.
  std::vector<double> Convolved(size_t sequence, int32_t t, int32_t first, int32_t count) const {
    std::vector<double> u;
    for (int32_t c = first; c < first + count; ++c) {
      double sum = 0;
      for (int32_t j = 0; j < shape_.conv_kernel; ++j)
        sum +=
            static_cast<double>(conv_[static_cast<size_t>(c * shape_.conv_kernel + j)]) * Raw(sequence, t - shape_.conv_kernel + 1 + j, c);
      u.push_back(sum / (1 + std::exp(-sum)));
    }
    return u;
  }

  static void Normalise(std::vector<double>& x, double scale) {
    double sum = 1e-6;
    for (const double value : x) sum += value * value;
    for (double& value : x) value *= scale / std::sqrt(sum);
  }

  void FormulaOfHead(size_t sequence, int32_t head, std::vector<std::vector<double>>& rows) const {
    const int32_t kd = shape_.key_dim, vd = shape_.value_dim, keys = shape_.num_key_heads * kd;
    const int32_t key_head = head / (shape_.num_value_heads / shape_.num_key_heads);
    std::vector<std::vector<double>> state(static_cast<size_t>(kd), std::vector<double>(static_cast<size_t>(vd)));
    for (size_t t = 0; t < rows.size(); ++t) {
      const auto token = static_cast<int32_t>(t);
      std::vector<double> q = Convolved(sequence, token, key_head * kd, kd);
      std::vector<double> k = Convolved(sequence, token, keys + key_head * kd, kd);
      const std::vector<double> v = Convolved(sequence, token, 2 * keys + head * vd, vd);
      Normalise(q, 1 / std::sqrt(kd));
      Normalise(k, 1);
      const auto heads = static_cast<size_t>(shape_.num_value_heads), h = static_cast<size_t>(head);
      const auto b = static_cast<double>(ba_[sequence][t * 2 * heads + h]);
      const double a = static_cast<double>(ba_[sequence][t * 2 * heads + heads + h]) + static_cast<double>(dt_bias_[h]);
      const double decay = std::exp(-std::exp(static_cast<double>(a_log_[h])) * std::log1p(std::exp(a)));
      double squares = 0;
      std::vector<double> o(static_cast<size_t>(vd));
      for (size_t j = 0; j < o.size(); ++j) {
        double memory = 0;
        for (size_t i = 0; i < k.size(); ++i) memory += k[i] * (state[i][j] *= decay);
        const double delta = (v[j] - memory) / (1 + std::exp(-b));
        for (size_t i = 0; i < k.size(); ++i) o[j] += q[i] * (state[i][j] += k[i] * delta);
        squares += o[j] * o[j];
      }
      for (size_t j = 0; j < o.size(); ++j) {
        const double z = Raw(sequence, token, shape_.conv_dim() + head * vd + static_cast<int32_t>(j));
        rows[t][static_cast<size_t>(head * vd) + j] =
            o[j] / std::sqrt(squares / vd + 1e-6) * static_cast<double>(norm_[j]) * z / (1 + std::exp(-z));
      }
    }
  }

  const KernelTable& kernels_;
  DeltaNetShape shape_;
  InputType out_type_;
  int32_t workers_;
  std::unique_ptr<device::WorkerPool> pool_;
  std::vector<float> conv_, a_log_, dt_bias_, norm_;
  std::vector<std::vector<float>> qkvz_, ba_, recurrent_, conv_state_, drafts_;
  std::vector<std::vector<std::vector<std::byte>>> out_;  // [sequence][position]
};

void RunInChunks(Mixer& mixer, const std::vector<int32_t>& lengths, int32_t chunk) {
  const int32_t longest = *std::max_element(lengths.begin(), lengths.end());
  for (int32_t first = 0; first < longest; first += chunk) {
    std::vector<Mixer::Part> parts;
    for (size_t s = 0; s < lengths.size(); ++s) {
      if (first < lengths[s]) parts.push_back({s, first, std::min(chunk, lengths[s] - first)});
    }
    if (first / chunk % 2 == 1) std::reverse(parts.begin(), parts.end());
    mixer.Advance(parts);
  }
}

constexpr std::array kShapes = {DeltaNetShape{2, 4, 32, 32, 4}, DeltaNetShape{1, 3, 16, 24, 4}, DeltaNetShape{3, 3, 8, 5, 2},
                                DeltaNetShape{2, 2, 128, 128, 4}};

// Rows that are tried first and committed later, or tried and rejected, leave what plain rows leave.
TEST_P(DeltaRuleTest, State3_DraftsAcceptedOrNot_SameBitsAsPlainRows) {
  for (const DeltaNetShape& shape : kShapes) {
    const std::vector<int32_t> lengths = {70, 70};
    Mixer plain(kernels(), shape, InputType::kF32, 2, lengths);
    RunInChunks(plain, lengths, 70);
    Mixer drafted(kernels(), shape, InputType::kF32, 2, lengths);
    drafted.Advance({{0, 0, 5}, {1, 0, 9}});
    std::array<int32_t, 2> at = {5, 9};
    std::array<int32_t, 2> pending = {0, 0};
    for (int32_t step = 0; at[0] < 70 || at[1] < 70; ++step) {
      std::vector<Mixer::Part> parts;
      for (size_t s = 0; s < 2; ++s) {
        if (at[s] == 70) continue;
        const int32_t depth = std::min((step + static_cast<int32_t>(s)) % 5, 69 - at[s]);
        parts.push_back({s, at[s], 1 + depth, depth, pending[s]});
      }
      drafted.Advance(parts);
      for (const Mixer::Part& part : parts) {
        pending[part.sequence] = part.drafts == 0 ? 0 : (step * 3 + 1) % (part.drafts + 1);
        at[part.sequence] += 1 + pending[part.sequence];
      }
    }
    // What is pending at the end is applied by a row more, of which the mixers have none: compare outputs, and states where all is applied.
    EXPECT_EQ(drafted.out(), plain.out()) << kernels().name;
    if (pending[0] == 0 && pending[1] == 0) {
      EXPECT_EQ(drafted.States(), plain.States()) << kernels().name;
    }
  }
}

TEST_P(DeltaRuleTest, WholeOperation_AgreesWithTheFormula) {
  for (const DeltaNetShape& shape : kShapes) {
    const std::vector<int32_t> lengths = {40, 1, 3};
    Mixer mixer(kernels(), shape, InputType::kF32, 2, lengths);
    RunInChunks(mixer, lengths, 9);
    for (size_t s = 0; s < lengths.size(); ++s) {
      const std::vector<std::vector<double>> want = mixer.Formula(s);
      for (size_t t = 0; t < want.size(); ++t) {
        for (size_t i = 0; i < want[t].size(); ++i) {
          const double got = ReadAs(InputType::kF32, mixer.out()[s][t].data(), static_cast<int32_t>(i));
          // The kernel's error (above) is relative to the largest output of a head; the norm divides by the outputs' mean size, which
          // may be ten times smaller. Results have sizes up to 5.
          const double tolerance = 10 * 5 * (shape.key_dim + 30) * 2 * kUnit * (1 + static_cast<double>(t));
          ASSERT_NEAR(got, want[t][i], tolerance)
              << shape.key_dim << "x" << shape.value_dim << " sequence " << s << " token " << t << " column " << i;
        }
      }
    }
  }
}

TEST_P(DeltaRuleTest, Num1_AnyChunkCompanyAndWorkers_SameBitsAndStates) {
  for (const DeltaNetShape& shape : kShapes) {
    const InputType out_type = shape.key_dim == 8 ? InputType::kBf16 : InputType::kF32;
    const std::vector<int32_t> lengths = {150, 2, 67};
    Mixer alone(kernels(), shape, out_type, 1, lengths);
    for (size_t s = 0; s < lengths.size(); ++s) {
      for (int32_t t = 0; t < lengths[s]; ++t) alone.Advance({{s, t, 1}});
    }
    for (const auto& [workers, chunk] : {std::pair{1, 200}, {2, 1}, {3, 64}, {5, 7}, {2, 65}, {16, 3}, {2, 128}}) {
      Mixer mixer(kernels(), shape, out_type, workers, lengths);
      RunInChunks(mixer, lengths, chunk);
      EXPECT_TRUE(mixer.out() == alone.out()) << workers << " workers, chunks of " << chunk;
      const auto got = mixer.States(), want = alone.States();
      for (size_t i = 0; i < want.size(); ++i) ASSERT_TRUE(SameBits(got[i], want[i])) << "state " << i << ", chunks of " << chunk;
    }
  }
}

}  // namespace
}  // namespace avocet::ops
