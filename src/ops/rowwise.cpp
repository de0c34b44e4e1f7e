#include "ops/rowwise.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "base/limits.h"

namespace avocet::ops {
namespace {

// Few rows: every worker for itself. Many: a share each, then a barrier. make(out, r) makes row r.
template <typename Make>
void MakeRows(device::Worker& worker, int32_t rows, const ProductInput& out, const Make& make) {
  if (out.IsReplicated(rows)) {
    const MutableInputView own = out.Private(worker, rows);
    for (int32_t r = 0; r < rows; ++r) make(own, r);
    return;
  }
  const MutableInputView shared = out.Shared(rows);
  const auto [begin, end] = worker.Share(rows);
  for (int32_t r = begin; r < end; ++r) make(shared, r);
  worker.Barrier();
}

void QuantizeRow(const KernelTable& kernels, std::span<const float> x, Int8Input input, const MutableInputView& out, int32_t row) {
  kernels.quantize(
      {.x = x.data(), .size = static_cast<int32_t>(x.size()), .input = input, .out = out.row(row), .row_scale = out.scales + row});
}

template <typename RowOf>
void NormRows(device::Worker& worker, const KernelTable& kernels, int32_t rows, const RowOf& row_of, std::span<const float> weight,
              float eps, const ProductInput& out, Int8Input input) {
  const bool is_int8 = IsInt8(out.type());
  const std::span<float> scratch = is_int8 ? out.RowScratch(worker) : std::span<float>();
  MakeRows(worker, rows, out, [&](const MutableInputView& to, int32_t r) {
    kernels.norm({.x = row_of(r),
                  .weight = weight.data(),
                  .gate = nullptr,
                  .size = static_cast<int32_t>(weight.size()),
                  .eps = eps,
                  .out_type = is_int8 ? InputType::kF32 : to.type,
                  .out = is_int8 ? reinterpret_cast<std::byte*>(scratch.data()) : to.row(r)});
    if (is_int8) QuantizeRow(kernels, scratch, input, to, r);
  });
}

void RouteRow(const float* logits, int32_t num_experts, std::span<int32_t> experts, std::span<float> weights) {
  // The k largest in order; among equals the lower index comes first.
  std::array<float, limits::kTopKMax> best;
  const auto top_k = experts.size();
  size_t count = 0;
  for (int32_t e = 0; e < num_experts; ++e) {
    const float logit = std::isnan(logits[e]) ? -INFINITY : logits[e];
    if (count == top_k && !(logit > best[count - 1])) continue;
    size_t at = count < top_k ? count++ : count - 1;
    for (; at > 0 && logit > best[at - 1]; --at) {
      best[at] = best[at - 1];
      experts[at] = experts[at - 1];
    }
    best[at] = logit;
    experts[at] = e;
  }
  // Softmax over all experts, renormalised over the chosen ones, is softmax over the chosen ones.
  double sum = 0;
  for (size_t j = 0; j < top_k; ++j) sum += std::exp(static_cast<double>(best[j]) - static_cast<double>(best[0]));
  std::array<float, limits::kTopKMax> by_rank;
  for (size_t j = 0; j < top_k; ++j)
    by_rank[j] = static_cast<float>(std::exp(static_cast<double>(best[j]) - static_cast<double>(best[0])) / sum);
  // Ascending expert id: the order in which their outputs are added.
  for (size_t j = 0; j < top_k; ++j) {
    size_t at = j;
    const int32_t expert = experts[j];
    const float weight = by_rank[j];
    for (; at > 0 && experts[at - 1] > expert; --at) {
      experts[at] = experts[at - 1];
      weights[at] = weights[at - 1];
    }
    experts[at] = expert;
    weights[at] = weight;
  }
}

}  // namespace

void RmsNorm(device::Worker& worker, const KernelTable& kernels, MatView<const float> x, std::span<const float> weight, float eps,
             const ProductInput& out, Int8Input input) {
  NormRows(worker, kernels, x.rows, [&x](int32_t r) { return x.row(r); }, weight, eps, out, input);
}

void RmsNormRows(device::Worker& worker, const KernelTable& kernels, MatView<const float> x, std::span<const int32_t> rows,
                 std::span<const float> weight, float eps, const ProductInput& out, Int8Input input) {
  NormRows(
      worker, kernels, static_cast<int32_t>(rows.size()), [&](int32_t r) { return x.row(rows[static_cast<size_t>(r)]); }, weight, eps, out,
      input);
}

void QuantizeRows(device::Worker& worker, const KernelTable& kernels, const InputView& x, Int8Input input, const ProductInput& out) {
  DCHECK(x.type == InputType::kF32 && out.type() == kernels.int8_input_type, "only f32 rows are rounded to int8");
  MakeRows(worker, x.rows, out, [&](const MutableInputView& to, int32_t r) {
    QuantizeRow(kernels, {reinterpret_cast<const float*>(x.row(r)), static_cast<size_t>(x.cols)}, input, to, r);
  });
}

void RmsNormPairs(const device::Worker& worker, const KernelTable& kernels, MatView<const float> x, std::span<const float> x_weight,
                  MatView<const float> y, std::span<const int32_t> y_rows, std::span<const float> y_weight, float eps,
                  const MutableInputView& out) {
  const auto [begin, end] = worker.Share(x.rows);
  const auto norm = [&](const float* row, std::span<const float> weight, float* to) {
    kernels.norm({.x = row,
                  .weight = weight.data(),
                  .gate = nullptr,
                  .size = x.cols,
                  .eps = eps,
                  .out_type = InputType::kF32,
                  .out = reinterpret_cast<std::byte*>(to)});
  };
  CHECK(out.type == InputType::kF32, "NUM-1: pairs of norms are f32");
  for (int32_t r = begin; r < end; ++r) {
    float* to = reinterpret_cast<float*>(out.row(r));
    norm(x.row(r), x_weight, to);
    norm(y.row(y_rows[static_cast<size_t>(r)]), y_weight, to + x.cols);
  }
}

void GatherEmbedding(const device::Worker& worker, std::span<const int32_t> token_ids, const PackedWeight& table, MatView<float> out) {
  const auto [begin, end] = worker.Share(static_cast<int32_t>(token_ids.size()));
  for (int32_t r = begin; r < end; ++r) UnpackRow(table, token_ids[static_cast<size_t>(r)], out.row(r));
}

void RouteTopK(const KernelTable& /*kernels*/, MatView<const float> router_logits, int32_t top_k, MatView<int32_t> experts,
               MatView<float> weights) {
  DCHECK(top_k >= 1 && top_k <= limits::kTopKMax, "{} experts per token", top_k);
  for (int32_t r = 0; r < router_logits.rows; ++r) {
    RouteRow(router_logits.row(r), router_logits.cols, experts.row_span(r), weights.row_span(r));
  }
}

ExpertGroups GroupByExpert(MatView<const int32_t> experts, int32_t num_experts, std::span<int32_t> offsets, std::span<int32_t> slot_row,
                           std::span<int32_t> active_experts, MatView<int32_t> slot_of) {
  std::fill(offsets.begin(), offsets.end(), 0);
  for (int32_t r = 0; r < experts.rows; ++r) {
    for (int32_t expert : experts.row_span(r)) ++offsets[static_cast<size_t>(expert) + 1];
  }
  size_t num_active = 0;
  for (int32_t e = 0; e < num_experts; ++e) {
    const auto i = static_cast<size_t>(e);
    if (offsets[i + 1] > 0) active_experts[num_active++] = e;
    offsets[i + 1] += offsets[i];
  }
  // offsets[e] runs ahead to the end of its expert and is put back afterwards.
  for (int32_t r = 0; r < experts.rows; ++r) {
    for (int32_t j = 0; j < experts.cols; ++j) {
      const int32_t slot = offsets[static_cast<size_t>(experts.row(r)[j])]++;
      slot_row[static_cast<size_t>(slot)] = r;
      slot_of.row(r)[j] = slot;
    }
  }
  for (size_t e = static_cast<size_t>(num_experts); e > 0; --e) offsets[e] = offsets[e - 1];
  offsets[0] = 0;
  return {offsets, slot_row, active_experts.first(num_active)};
}

void CombineExperts(const device::Worker& worker, const KernelTable& kernels, MatView<const float> expert_out,
                    MatView<const int32_t> slot_of, MatView<const float> weights, MatView<const float> shared_out,
                    MatView<const float> shared_gate, MatView<float> hidden) {
  constexpr int32_t kBlockCols = 256;
  const int32_t blocks = (hidden.cols + kBlockCols - 1) / kBlockCols;
  const auto [begin, end] = worker.Share(hidden.rows * blocks);
  std::array<const float*, limits::kTopKMax> rows;
  for (int32_t unit = begin; unit < end; ++unit) {
    const int32_t r = unit / blocks;
    const int32_t col = unit % blocks * kBlockCols;
    for (int32_t j = 0; j < slot_of.cols; ++j) rows[static_cast<size_t>(j)] = expert_out.row(slot_of.row(r)[j]) + col;
    CombineArgs args{.hidden = hidden.row(r) + col,
                     .size = std::min(kBlockCols, hidden.cols - col),
                     .rows = rows.data(),
                     .weights = weights.row(r),
                     .count = slot_of.cols};
    if (shared_out.rows > 0) {
      args.shared = shared_out.row(r) + col;
      args.shared_scale = static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(shared_gate.row(r)[0]))));
    }
    kernels.combine(args);
  }
}

MaxResult ArgMax(const KernelTable& kernels, std::span<const float> row) {
  MaxResult result;
  kernels.argmax(row.data(), static_cast<int32_t>(row.size()), &result.value, &result.index);
  return result;
}

float LogSumExp(const KernelTable& kernels, std::span<const float> row, float max) {
  return max + static_cast<float>(std::log(static_cast<double>(kernels.sum_exp(row.data(), static_cast<int32_t>(row.size()), max))));
}

}  // namespace avocet::ops
