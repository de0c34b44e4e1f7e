#include "ops/delta_rule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/limits.h"

namespace avocet::ops {
namespace {

// Tokens that one task takes through its stages at a time: their activations stay in the second-level cache.
constexpr int32_t kBlockTokens = 64;

size_t RoundUp16(size_t floats) {
  return (floats + 15) / 16 * 16;
}

int32_t ValueHeadsPerKey(const DeltaNetShape& shape) {
  return shape.num_value_heads / shape.num_key_heads;
}

size_t StateFloatsPerHead(const DeltaNetShape& shape) {
  return static_cast<size_t>((shape.value_dim + 15) / 16 * 16) * static_cast<size_t>(shape.key_dim);
}

// One worker's activations for a block of tokens of one key head.
struct Scratch {
  float* q;      // [kBlockTokens, key_dim]
  float* k;      // [kBlockTokens, key_dim]
  float* v;      // [kBlockTokens, value_dim * value heads]
  float* out;    // [kBlockTokens, value_dim]
  float* kq;     // [kBlockTokens]
  float* decay;  // [kBlockTokens]
  float* beta;   // [kBlockTokens]
  float* state;  // of one value head, for rows that must leave the real one alone
};

size_t ScratchFloats(const DeltaNetShape& shape) {
  const auto key = static_cast<size_t>(shape.key_dim);
  const auto value = static_cast<size_t>(shape.value_dim);
  const size_t values = value * static_cast<size_t>(ValueHeadsPerKey(shape));
  return RoundUp16(kBlockTokens * (2 * key + values + value + 3)) + StateFloatsPerHead(shape);
}

Scratch ScratchAt(const DeltaNetShape& shape, float* memory) {
  const auto block = static_cast<size_t>(kBlockTokens);
  Scratch s{};
  s.q = memory;
  s.k = s.q + block * static_cast<size_t>(shape.key_dim);
  s.v = s.k + block * static_cast<size_t>(shape.key_dim);
  s.out = s.v + block * static_cast<size_t>(shape.value_dim) * static_cast<size_t>(ValueHeadsPerKey(shape));
  s.kq = s.out + block * static_cast<size_t>(shape.value_dim);
  s.decay = s.kq + block;
  s.beta = s.decay + block;
  s.state = memory + ScratchFloats(shape) - StateFloatsPerHead(shape);
  return s;
}

// softplus(x) = log(1 + exp(x)), linear above 20 as in the reference.
double Softplus(double x) {
  return x > 20.0 ? x : std::log1p(std::exp(x));
}

// What happens to the state and to the output of some rows.
enum class RowUse : uint8_t {
  kAdvance,  // the state advances
  kTry,      // drafts: outputs as if it had
  kReplay,   // accepted drafts of the last step: the state advances, their outputs are known
};

class Task {
 public:
  Task(const KernelTable& kernels, const DeltaNetShape& shape, const DeltaNetParams& params, MatView<const float> qkvz,
       MatView<const float> ba, const MutableInputView& out, float* memory)
      : kernels_(kernels), shape_(shape), params_(params), qkvz_(qkvz), ba_(ba), out_(out), scratch_(ScratchAt(shape, memory)) {}

  // All rows of a span for one key head and the value heads that use it.
  void RunSpan(const DeltaNetSpan& span, int32_t key_head) {
    if (span.first_position == 0) Clear(span, key_head);
    if (span.num_pending > 0) ReplayDrafts(span, key_head);
    const int32_t certain = span.num_rows - span.num_drafts;
    RunRows(span, key_head, 0, certain, RowUse::kAdvance);
    RunRows(span, key_head, certain, span.num_drafts, RowUse::kTry);
    for (const Channels& channels : ChannelsOf(key_head)) KeepHistory(span, key_head, channels);
    for (int32_t i = 0; i < span.num_drafts; ++i) KeepDraft(span, key_head, i);
  }

  // Asks for what the beginning of the next key head will wait for: pieces too short for the hardware to see a pattern in.
  void AskFor(const DeltaNetSpan& span, int32_t key_head) const {
    for (const Channels& channels : ChannelsOf(key_head)) {
      for (int32_t row = 1 - shape_.conv_kernel; row < std::min(span.num_rows, 2); ++row) {
        AskForLines(Inputs(span, key_head, channels, row), channels.count);
      }
    }
    AskForGate(span, 0, key_head * ValueHeadsPerKey(shape_));
  }

 private:
  void RunRows(const DeltaNetSpan& span, int32_t key_head, int32_t first_row, int32_t rows, RowUse use) {
    for (int32_t row = 0; row < rows; row += kBlockTokens) {
      RunBlock(span, key_head, first_row + row, std::min(kBlockTokens, rows - row), use);
    }
  }

  // The rows that were accepted, from what they left behind: the same operations that would have followed at once.
  void ReplayDrafts(const DeltaNetSpan& span, int32_t key_head) {
    const auto ld = static_cast<int32_t>(DraftRowFloats(shape_));
    const MatView<const float> inputs(span.drafts, span.num_pending, shape_.conv_dim(), ld);
    const MatView<const float> gates(span.drafts + shape_.conv_dim(), span.num_pending, 2 * shape_.num_value_heads, ld);
    Task past(kernels_, shape_, params_, inputs, gates, out_, scratch_.q);
    const DeltaNetSpan rows{.row_begin = 0,
                            .num_rows = span.num_pending,
                            .first_position = span.first_position - span.num_pending,
                            .num_drafts = 0,
                            .num_pending = 0,
                            .recurrent = span.recurrent,
                            .conv = span.conv,
                            .drafts = nullptr};
    past.RunRows(rows, key_head, 0, rows.num_rows, RowUse::kReplay);
    for (const Channels& channels : ChannelsOf(key_head)) past.KeepHistory(rows, key_head, channels);
  }

  // A draft row as the next step will want it: [q | k | v | b | a], of which the channels and gates of this key head.
  void KeepDraft(const DeltaNetSpan& span, int32_t key_head, int32_t draft) {
    const int32_t row = span.num_rows - span.num_drafts + draft;
    float* kept = span.drafts + static_cast<size_t>(draft) * DraftRowFloats(shape_);
    for (const Channels& channels : ChannelsOf(key_head)) {
      std::copy_n(Inputs(span, key_head, channels, row), channels.count, kept + channels.first);
    }
    const int32_t heads = ValueHeadsPerKey(shape_);
    const float* ba = ba_.row(span.row_begin + row);
    for (const int32_t first : {key_head * heads, shape_.num_value_heads + key_head * heads}) {
      std::copy_n(ba + first, heads, kept + shape_.conv_dim() + first);
    }
  }

  static void AskForLines(const float* from, int32_t count) {
    for (int32_t i = 0; i < count; i += 16) __builtin_prefetch(from + i);
  }

  const float* Gate(const DeltaNetSpan& span, int32_t row, int32_t value_head) const {
    return qkvz_.row(span.row_begin + row) + shape_.conv_dim() + static_cast<ptrdiff_t>(value_head) * shape_.value_dim;
  }
  void AskForGate(const DeltaNetSpan& span, int32_t row, int32_t value_head) const {
    AskForLines(Gate(span, row, value_head), shape_.value_dim);
  }

  // Channels of one of q, k, v under a key head.
  struct Channels {
    int32_t first;
    int32_t count;
    int32_t kept;  // where they begin among the kept inputs of the key head
  };

  std::array<Channels, 3> ChannelsOf(int32_t key_head) const {
    const int32_t keys = shape_.num_key_heads * shape_.key_dim;
    const int32_t values = ValueHeadsPerKey(shape_) * shape_.value_dim;
    return {{{key_head * shape_.key_dim, shape_.key_dim, 0},
             {keys + key_head * shape_.key_dim, shape_.key_dim, shape_.key_dim},
             {2 * keys + key_head * values, values, 2 * shape_.key_dim}}};
  }

  // A new sequence starts from zero, whatever the slot held.
  void Clear(const DeltaNetSpan& span, int32_t key_head) {
    const auto heads = static_cast<size_t>(ValueHeadsPerKey(shape_));
    const size_t floats = StateFloatsPerHead(shape_) * heads;
    std::memset(span.recurrent + static_cast<size_t>(key_head) * floats, 0, floats * sizeof(float));
    std::memset(KeptRow(span, key_head, 0), 0, static_cast<size_t>(shape_.conv_kernel - 1) * KeptFloats() * sizeof(float));
  }

  size_t KeptFloats() const { return static_cast<size_t>(shape_.conv_dim() / shape_.num_key_heads); }

  // The kept inputs of a position before this span, [q | k | v] of one key head. Those of a key head lie together, one after another in
  // the order in which they are read: [key heads][conv_kernel-1][q | k | v], a ring by position so that a step writes only its own rows.
  float* KeptRow(const DeltaNetSpan& span, int32_t key_head, int32_t position) const {
    const int32_t before = shape_.conv_kernel - 1;
    return span.conv + static_cast<size_t>(key_head * before + (position + before) % before) * KeptFloats();
  }

  // The raw inputs of row `row` of the span; negative rows are earlier positions.
  const float* Inputs(const DeltaNetSpan& span, int32_t key_head, const Channels& channels, int32_t row) const {
    if (row >= 0) return qkvz_.row(span.row_begin + row) + channels.first;
    return KeptRow(span, key_head, span.first_position + row) + channels.kept;
  }

  void Convolve(const DeltaNetSpan& span, int32_t key_head, const Channels& channels, int32_t first_row, int32_t rows, float* out) {
    const int32_t taps = shape_.conv_kernel;
    std::array<const float*, limits::kConvKernelMax> history;
    for (int32_t i = 0; i < taps - 1; ++i) {
      history[static_cast<size_t>(i)] = Inputs(span, key_head, channels, first_row - (taps - 1) + i);
    }
    kernels_.conv_silu({.num_tokens = rows,
                        .channels = channels.count,
                        .taps = taps,
                        .x = qkvz_.row(span.row_begin + first_row) + channels.first,
                        .x_ld = qkvz_.ld,
                        .history = history.data(),
                        .weight = params_.conv_weight.data() + static_cast<ptrdiff_t>(channels.first) * taps,
                        .out = out,
                        .out_ld = channels.count});
  }

  // The last raw inputs of the span, for the next step.
  void KeepHistory(const DeltaNetSpan& span, int32_t key_head, const Channels& channels) {
    const int32_t certain = span.num_rows - span.num_drafts;
    for (int32_t row = std::max(0, certain - (shape_.conv_kernel - 1)); row < certain; ++row) {
      std::memcpy(KeptRow(span, key_head, span.first_position + row) + channels.kept, Inputs(span, key_head, channels, row),
                  static_cast<size_t>(channels.count) * sizeof(float));
    }
  }

  void Normalise(float* x, float scale) {
    const float sum = kernels_.dot(x, x, shape_.key_dim);
    kernels_.scale(x, shape_.key_dim, scale / std::sqrt(sum + 1e-6f));
  }

  void RunBlock(const DeltaNetSpan& span, int32_t key_head, int32_t first_row, int32_t rows, RowUse use) {
    const auto channels = ChannelsOf(key_head);
    const int32_t key_dim = shape_.key_dim;
    const int32_t v_ld = channels[2].count;
    Convolve(span, key_head, channels[0], first_row, rows, scratch_.q);
    Convolve(span, key_head, channels[1], first_row, rows, scratch_.k);
    Convolve(span, key_head, channels[2], first_row, rows, scratch_.v);
    const float q_scale = 1.0f / std::sqrt(static_cast<float>(key_dim));
    for (int32_t t = 0; t < rows; ++t) {
      float* q = scratch_.q + static_cast<ptrdiff_t>(t) * key_dim;
      float* k = scratch_.k + static_cast<ptrdiff_t>(t) * key_dim;
      Normalise(q, q_scale);
      Normalise(k, 1.0f);
      scratch_.kq[t] = kernels_.dot(k, q, key_dim);
    }
    const int32_t heads = ValueHeadsPerKey(shape_);
    const bool is_last_block = first_row + rows == span.num_rows;
    if (is_last_block && use != RowUse::kReplay && key_head + 1 < shape_.num_key_heads) AskFor(span, key_head + 1);
    for (int32_t j = 0; j < heads; ++j) RunHead(span, {key_head * heads + j, j, v_ld}, first_row, rows, use);
  }

  struct ValueHead {
    int32_t id;
    int32_t index;  // among those of its key head
    int32_t v_ld;
  };

  // Where the rows of a head find the state. Rows that are tried get a copy: it is warm, and the real one stays.
  float* StateFor(const DeltaNetSpan& span, size_t head, RowUse use) {
    float* state = span.recurrent + head * StateFloatsPerHead(shape_);
    if (use != RowUse::kTry) return state;
    std::copy_n(state, StateFloatsPerHead(shape_), scratch_.state);
    return scratch_.state;
  }

  void RunHead(const DeltaNetSpan& span, const ValueHead& value, int32_t first_row, int32_t rows, RowUse use) {
    const int32_t value_head = value.id;
    const auto head = static_cast<size_t>(value_head);
    const double rate = -std::exp(static_cast<double>(params_.a_log[head]));
    for (int32_t t = 0; t < rows; ++t) {
      const float* ba = ba_.row(span.row_begin + first_row + t);
      const double b = static_cast<double>(ba[value_head]);
      const double a = static_cast<double>(ba[shape_.num_value_heads + value_head]);
      scratch_.beta[t] = static_cast<float>(1.0 / (1.0 + std::exp(-b)));
      scratch_.decay[t] = static_cast<float>(std::exp(rate * Softplus(a + static_cast<double>(params_.dt_bias[head]))));
    }
    kernels_.delta_rule({.num_tokens = rows,
                         .key_dim = shape_.key_dim,
                         .value_dim = shape_.value_dim,
                         .q = scratch_.q,
                         .k = scratch_.k,
                         .qk_ld = shape_.key_dim,
                         .v = scratch_.v + static_cast<ptrdiff_t>(value.index) * shape_.value_dim,
                         .v_ld = value.v_ld,
                         .decay = scratch_.decay,
                         .beta = scratch_.beta,
                         .kq = scratch_.kq,
                         .state = StateFor(span, head, use),
                         .out = scratch_.out,
                         .out_ld = shape_.value_dim});
    if (use == RowUse::kReplay) return;
    for (int32_t t = 0; t < rows; ++t) Finish(span, first_row + t, value_head, scratch_.out + static_cast<ptrdiff_t>(t) * shape_.value_dim);
  }

  // The gated norm of one token of one value head.
  void Finish(const DeltaNetSpan& span, int32_t row, int32_t value_head, const float* values) {
    constexpr int32_t kAhead = 3;  // rows
    if (row + kAhead < span.num_rows) AskForGate(span, row + kAhead, value_head);
    const ptrdiff_t column = static_cast<ptrdiff_t>(value_head) * shape_.value_dim;
    kernels_.norm({.x = values,
                   .weight = params_.norm.data(),
                   .gate = Gate(span, row, value_head),
                   .size = shape_.value_dim,
                   .eps = params_.eps,
                   .out_type = out_.type,
                   .out = out_.row(span.row_begin + row) + static_cast<size_t>(column) * InputBytes(out_.type)});
  }

  const KernelTable& kernels_;
  const DeltaNetShape& shape_;
  const DeltaNetParams& params_;
  MatView<const float> qkvz_;
  MatView<const float> ba_;
  const MutableInputView& out_;
  Scratch scratch_;
};

}  // namespace

size_t RecurrentStateFloats(const DeltaNetShape& shape) {
  return StateFloatsPerHead(shape) * static_cast<size_t>(shape.num_value_heads);
}

size_t ConvStateFloats(const DeltaNetShape& shape) {
  return static_cast<size_t>(shape.conv_kernel - 1) * static_cast<size_t>(shape.conv_dim());
}

size_t DraftRowFloats(const DeltaNetShape& shape) {
  return static_cast<size_t>(shape.conv_dim()) + 2 * static_cast<size_t>(shape.num_value_heads);
}

size_t DeltaNetScratchBytes(const DeltaNetShape& shape, int32_t /*max_rows*/, int32_t num_workers) {
  return static_cast<size_t>(num_workers) * ScratchFloats(shape) * sizeof(float);
}

void DeltaNet(const device::Worker& worker, const KernelTable& kernels, const DeltaNetShape& shape, const DeltaNetParams& params,
              MatView<const float> qkvz, MatView<const float> ba, std::span<const DeltaNetSpan> spans, std::span<std::byte> scratch,
              const MutableInputView& out) {
  float* memory = reinterpret_cast<float*>(scratch.data()) + static_cast<size_t>(worker.id()) * ScratchFloats(shape);
  Task task(kernels, shape, params, qkvz, ba, out, memory);
  // Tasks are dealt out in order by what they cost: the state's visit, and the rows.
  const auto cost_of = [](const DeltaNetSpan& span) { return int64_t{1} + span.num_rows + span.num_pending; };
  int64_t total = 0;
  for (const DeltaNetSpan& span : spans) total += cost_of(span) * shape.num_key_heads;
  const int64_t low = total * worker.id() / worker.count();
  const int64_t high = total * (worker.id() + 1) / worker.count();
  int64_t base = 0;
  for (const DeltaNetSpan& span : spans) {
    for (int32_t head = 0; head < shape.num_key_heads; ++head) {
      if (base >= low && base < high) {
        task.RunSpan(span, head);
      }
      base += cost_of(span);
    }
  }
}

void UnpackRecurrentState(const DeltaNetShape& shape, const float* recurrent, int32_t value_head, float* dst) {
  const float* state = recurrent + static_cast<size_t>(value_head) * StateFloatsPerHead(shape);
  for (int32_t k = 0; k < shape.key_dim; ++k) {
    for (int32_t v = 0; v < shape.value_dim; ++v) {
      dst[static_cast<ptrdiff_t>(k) * shape.value_dim + v] = state[(static_cast<ptrdiff_t>(v / 16) * shape.key_dim + k) * 16 + v % 16];
    }
  }
}

}  // namespace avocet::ops
