#include "ops/linear.h"

#include <algorithm>

#include "base/check.h"

namespace avocet::ops {
namespace {

using LinearKernel = void (*)(const LinearArgs&);

// Panels go to workers in groups: four streams keep a core's memory reads busy. Few panels are dealt out singly (in pairs for SwiGLU).
constexpr int32_t kGroupPanels = 4;

struct PanelRange {
  int32_t begin = 0;
  int32_t end = 0;
};

PanelRange SharePanels(const device::Worker& worker, int32_t num_panels, int32_t unit) {
  const int32_t group = num_panels >= 2 * kGroupPanels * worker.count() ? kGroupPanels : unit;
  const auto [begin, end] = worker.Share((num_panels + group - 1) / group);
  return {std::min(begin * group, num_panels), std::min(end * group, num_panels)};
}

LinearKernel ChooseLinear(const KernelTable& kernels, InputType input, WeightFormat format) {
  if (format == WeightFormat::kInt8) return kernels.linear_int8_int8;
  if (format == WeightFormat::kF32) return kernels.linear_f32_f32;
  return input == InputType::kF32 ? kernels.linear_f32_bf16 : kernels.linear_bf16_bf16;
}

LinearKernel ChooseSwiGlu(const KernelTable& kernels, InputType input, WeightFormat format) {
  if (format == WeightFormat::kInt8) return kernels.swiglu_int8_int8;
  if (format == WeightFormat::kF32) return kernels.swiglu_f32_f32;
  return input == InputType::kF32 ? kernels.swiglu_f32_bf16 : kernels.swiglu_bf16_bf16;
}

void CheckProduct([[maybe_unused]] const KernelTable& kernels, const InputView& x, const PackedWeight& weight, LinearKernel kernel) {
  DCHECK(x.cols == weight.in_features, "input has {} columns, the weight {}", x.cols, weight.in_features);
  DCHECK(kernel != nullptr && (weight.format != WeightFormat::kInt8 || x.type == kernels.int8_input_type) &&
             IsInt8(x.type) == (weight.format == WeightFormat::kInt8) && (weight.format != WeightFormat::kF32 || x.type == InputType::kF32),
         "no kernel for this input and weight type");
}

// A product over panels [range) whose results start at `out`.
LinearArgs ArgsFor(const InputView& x, const PackedWeight& weight, PanelRange range) {
  LinearArgs args;
  args.x = x.data;
  args.x_row_bytes = static_cast<size_t>(x.ld) * InputBytes(x.type);
  args.row_scales = x.scales;
  args.rows = x.rows;
  args.in_features = weight.in_features;
  args.panel_bytes = PanelBytes(weight.format, weight.in_features);
  args.panels = weight.data + static_cast<size_t>(range.begin) * args.panel_bytes;
  args.num_panels = range.end - range.begin;
  return args;
}

void AimAt(LinearArgs& args, MatView<float> y, int32_t first_panel) {
  const int32_t col = first_panel * kPanelCols;
  args.out = reinterpret_cast<std::byte*>(y.data + col);
  args.out_row_bytes = static_cast<size_t>(y.ld) * sizeof(float);
  args.out_cols = y.cols - col;
}

// SwiGLU halves the columns: panels 2i and 2i+1 give columns 16i...
void AimAt(LinearArgs& args, const MutableInputView& y, int32_t first_panel) {
  const int32_t col = first_panel * kPanelCols / 2;
  args.out = y.data + static_cast<size_t>(col) * InputBytes(y.type);
  args.out_row_bytes = static_cast<size_t>(y.ld) * InputBytes(y.type);
  args.out_cols = y.cols - col;
  args.out_type = y.type;
}

// The worker's share of (active expert, panel group) pairs, balanced by what they cost: reading a group, and multiplying its rows.
// Calls visit(expert, panels) in order. Every worker computes the same division.
template <typename Visit>
void ShareExperts(const device::Worker& worker, const ExpertGroups& groups, int32_t num_panels, int32_t unit, const Visit& visit) {
  const int32_t group = num_panels % kGroupPanels == 0 ? kGroupPanels : unit;
  const int64_t groups_per_expert = (num_panels + group - 1) / group;
  // Multiplying about 8 rows takes as long as reading their weights.
  const auto cost_of = [&groups](int32_t expert) {
    const auto e = static_cast<size_t>(expert);
    return int64_t{8} + groups.offsets[e + 1] - groups.offsets[e];
  };
  int64_t total = 0;
  for (int32_t expert : groups.active_experts) total += cost_of(expert) * groups_per_expert;
  const int64_t low = total * worker.id() / worker.count();
  const int64_t high = total * (worker.id() + 1) / worker.count();
  int64_t base = 0;
  for (int32_t expert : groups.active_experts) {
    const int64_t cost = cost_of(expert);
    // A group belongs to the worker in whose range it starts.
    const auto first_from = [&](int64_t bound) { return std::clamp<int64_t>((bound - base + cost - 1) / cost, 0, groups_per_expert); };
    const int64_t begin = low <= base ? 0 : first_from(low);
    const int64_t end = high <= base ? 0 : first_from(high);
    if (begin < end) {
      visit(expert, PanelRange{static_cast<int32_t>(begin) * group, std::min(static_cast<int32_t>(end) * group, num_panels)});
    }
    base += cost * groups_per_expert;
  }
}

}  // namespace

void Linear(const device::Worker& worker, const KernelTable& kernels, const InputView& x, const PackedWeight& weight, MatView<float> y,
            Accumulate accumulate) {
  const LinearKernel kernel = ChooseLinear(kernels, x.type, weight.format);
  CheckProduct(kernels, x, weight, kernel);
  const PanelRange range = SharePanels(worker, weight.num_panels(), 1);
  if (range.begin >= range.end) return;
  LinearArgs args = ArgsFor(x, weight, range);
  AimAt(args, y, range.begin);
  args.accumulate = accumulate;
  kernel(args);
}

void LinearSwiGlu(const device::Worker& worker, const KernelTable& kernels, const InputView& x, const PackedWeight& gate_up,
                  const MutableInputView& out) {
  const LinearKernel kernel = ChooseSwiGlu(kernels, x.type, gate_up.format);
  CheckProduct(kernels, x, gate_up, kernel);
  const PanelRange range = SharePanels(worker, gate_up.num_panels(), 2);
  if (range.begin >= range.end) return;
  LinearArgs args = ArgsFor(x, gate_up, range);
  AimAt(args, out, range.begin);
  kernel(args);
}

void GroupedLinearSwiGlu(const device::Worker& worker, const KernelTable& kernels, const InputView& x, const ExpertGroups& groups,
                         std::span<const PackedWeight> gate_up, const MutableInputView& out) {
  const LinearKernel kernel = ChooseSwiGlu(kernels, x.type, gate_up[0].format);
  CheckProduct(kernels, x, gate_up[0], kernel);
  ShareExperts(worker, groups, gate_up[0].num_panels(), 2, [&](int32_t expert, PanelRange range) {
    const auto e = static_cast<size_t>(expert);
    LinearArgs args = ArgsFor(x, gate_up[e], range);
    args.row_index = groups.slot_row.data() + groups.offsets[e];
    args.rows = groups.offsets[e + 1] - groups.offsets[e];
    AimAt(args, out, range.begin);
    args.out += static_cast<size_t>(groups.offsets[e]) * args.out_row_bytes;
    kernel(args);
  });
}

void GroupedLinear(const device::Worker& worker, const KernelTable& kernels, const InputView& x, const ExpertGroups& groups,
                   std::span<const PackedWeight> weights, MatView<float> y) {
  const LinearKernel kernel = ChooseLinear(kernels, x.type, weights[0].format);
  CheckProduct(kernels, x, weights[0], kernel);
  ShareExperts(worker, groups, weights[0].num_panels(), 1, [&](int32_t expert, PanelRange range) {
    const auto e = static_cast<size_t>(expert);
    const int32_t slots = groups.offsets[e + 1] - groups.offsets[e];
    LinearArgs args = ArgsFor(x.Rows(groups.offsets[e], slots), weights[e], range);
    AimAt(args, y, range.begin);
    args.out += static_cast<size_t>(groups.offsets[e]) * args.out_row_bytes;
    kernel(args);
  });
}

}  // namespace avocet::ops
