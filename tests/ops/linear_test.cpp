// The linear operations over workers: the same bits for any batch, grouping and number of workers, and the right numbers.
#include "ops/linear.h"

#include <algorithm>

#include "ops/rowwise.h"
#include "ops_test_util.h"

namespace avocet::ops {
namespace {

struct Operands {
  InputType input;
  WeightFormat weight;
};

std::vector<Operands> OperandsOf(const KernelTable& kernels) {
  std::vector<Operands> all = {{InputType::kF32, WeightFormat::kBf16}, {InputType::kF32, WeightFormat::kF32}};
  if (kernels.linear_bf16_bf16 != nullptr) all.push_back({InputType::kBf16, WeightFormat::kBf16});
  return all;
}

using LinearTest = FamilyTest;
AVOCET_ALL_FAMILIES(LinearTest);

std::vector<float> RunLinear(const KernelTable& kernels, int32_t workers, const InputView& x, const PackedWeight& weight,
                             Accumulate accumulate = Accumulate::kStore) {
  std::vector<float> y(static_cast<size_t>(x.rows) * static_cast<size_t>(weight.out_features), 0.25f);
  const MatView<float> view(y.data(), x.rows, weight.out_features);
  MakePool(workers)->Run([&](device::Worker& worker) { Linear(worker, kernels, x, weight, view, accumulate); });
  return y;
}

// NUM-1: a row alone, in a batch of any size, on any number of workers.
TEST_P(LinearTest, Num1_RowAloneOrInABatch_SameBits) {
  Random random(11);
  for (const Operands& operands : OperandsOf(kernels())) {
    for (const auto& [out, in] : {std::pair{500, 70}, {16, 33}, {7, 5}, {1040, 1030}}) {
      constexpr int32_t kRows = 27;
      const InputMatrix x(operands.input, kRows, in, random.Floats(kRows * static_cast<size_t>(in)));
      const PackedMatrix matrix(operands.weight, out, in, random.Floats(static_cast<size_t>(out) * static_cast<size_t>(in)));
      for (const Accumulate accumulate : {Accumulate::kStore, Accumulate::kAdd}) {
        const std::vector<float> whole = RunLinear(kernels(), 1, x.view(), matrix.weight(), accumulate);
        for (int32_t workers : {2, 3, 5}) {
          EXPECT_TRUE(SameBits(RunLinear(kernels(), workers, x.view(), matrix.weight(), accumulate), whole)) << workers << " workers";
        }
        for (int32_t count : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 17, 26}) {
          for (int32_t first : {0, kRows - count}) {
            const std::vector<float> part = RunLinear(kernels(), 2, x.view().Rows(first, count), matrix.weight(), accumulate);
            EXPECT_EQ(std::memcmp(part.data(), whole.data() + static_cast<size_t>(first) * static_cast<size_t>(out), part.size() * 4), 0)
                << out << "x" << in << ": rows " << first << "+" << count;
          }
        }
      }
    }
  }
}

TEST_P(LinearTest, SwiGlu_HalfTheColumns_OfAnyWidth) {
  Random random(12);
  for (const Operands& operands : OperandsOf(kernels())) {
    for (const int32_t intermediate : {16, 24, 100, 333}) {
      constexpr int32_t kRows = 5;
      constexpr int32_t kIn = 46;
      const int32_t padded = (intermediate + 15) / 16 * 32;
      const InputMatrix x(operands.input, kRows, kIn, random.Floats(kRows * kIn));
      const std::vector<float> rows = random.Floats(static_cast<size_t>(padded) * kIn);
      const PackedMatrix matrix(operands.weight, padded, kIn, rows);
      std::vector<std::vector<std::byte>> first;
      for (int32_t workers : {1, 2, 3, 5}) {
        const InputMatrix out(operands.input, kRows, intermediate, std::vector<float>(static_cast<size_t>(kRows * intermediate)));
        MakePool(workers)->Run([&](device::Worker& worker) { LinearSwiGlu(worker, kernels(), x.view(), matrix.weight(), out.writable()); });
        std::vector<std::vector<std::byte>> got;
        for (int32_t r = 0; r < kRows; ++r) got.push_back(out.Row(r));
        if (first.empty()) first = got;
        EXPECT_EQ(got, first) << workers << " workers";
      }
      const std::vector<float> sums = RunLinear(kRefKernels, 1, x.view(), matrix.weight());
      for (int32_t r = 0; r < kRows; ++r) {
        for (int32_t c = 0; c < intermediate; ++c) {
          const auto at = static_cast<size_t>(r * padded + c / 16 * 32 + c % 16);
          const auto gate = static_cast<double>(sums[at]);
          const double want = gate / (1 + std::exp(-gate)) * static_cast<double>(sums[at + 16]);
          // Sums of 46 products below 1 in magnitude, each pair multiplied: far below 1e-3 in f32, one bf16 step in bf16.
          const double tolerance = 46 * 46 * 46 * kUnit + (operands.input == InputType::kBf16 ? kBf16Step * std::abs(want) : 0);
          ASSERT_NEAR(ReadAs(operands.input, first[static_cast<size_t>(r)].data(), c), want, tolerance);
        }
      }
    }
  }
}

// Experts of a small MoE layer and the routing of a step.
class Moe {
 public:
  Moe(uint64_t seed, const Operands& operands, int32_t num_experts, int32_t rows, int32_t top_k)
      : random_(seed), operands_(operands), num_experts_(num_experts), rows_(rows), top_k_(top_k) {
    for (int32_t e = 0; e < num_experts; ++e) {
      gate_up_.push_back(std::make_unique<PackedMatrix>(operands.weight, 2 * kMid, kIn, random_.Floats(2 * kMid * kIn)));
      down_.push_back(std::make_unique<PackedMatrix>(operands.weight, kOut, kMid, random_.Floats(kOut * kMid)));
      gate_up_views_.push_back(gate_up_.back()->weight());
      down_views_.push_back(down_.back()->weight());
    }
    x_ = std::make_unique<InputMatrix>(operands.input, rows, kIn, random_.Floats(static_cast<size_t>(rows) * kIn));
    for (int32_t r = 0; r < rows; ++r) {
      std::vector<int32_t> chosen;
      while (static_cast<int32_t>(chosen.size()) < top_k) {
        // Half of the choices go to a hot expert.
        const int32_t e = random_.Below(2) == 0 ? 3 % num_experts : random_.Below(num_experts);
        if (std::find(chosen.begin(), chosen.end(), e) == chosen.end()) chosen.push_back(e);
      }
      std::sort(chosen.begin(), chosen.end());
      experts_.insert(experts_.end(), chosen.begin(), chosen.end());
    }
  }

  // y[row, choice] for rows [first, first + count), computed together.
  std::vector<float> Run(const KernelTable& kernels, int32_t workers, int32_t first, int32_t count) {
    const size_t slots = static_cast<size_t>(count) * static_cast<size_t>(top_k_);
    std::vector<int32_t> offsets(static_cast<size_t>(num_experts_) + 1), slot_row(slots), active(static_cast<size_t>(num_experts_)),
        slot_of(slots);
    const MatView<const int32_t> experts(experts_.data() + static_cast<size_t>(first) * static_cast<size_t>(top_k_), count, top_k_);
    const ExpertGroups groups =
        GroupByExpert(experts, num_experts_, offsets, slot_row, active, MatView<int32_t>(slot_of.data(), count, top_k_));
    const InputMatrix mid(operands_.input, static_cast<int32_t>(slots), kMid, std::vector<float>(slots * kMid));
    std::vector<float> y(slots * kOut);
    const MatView<float> view(y.data(), static_cast<int32_t>(slots), kOut);
    MakePool(workers)->Run([&](device::Worker& worker) {
      GroupedLinearSwiGlu(worker, kernels, x_->view().Rows(first, count), groups, gate_up_views_, mid.writable());
      worker.Barrier();
      GroupedLinear(worker, kernels, mid.view(), groups, down_views_, view);
    });
    std::vector<float> by_row;
    for (const int32_t slot : slot_of) by_row.insert(by_row.end(), view.row(slot), view.row(slot) + kOut);
    return by_row;
  }

  // The same through the dense operations, one row and one expert at a time.
  std::vector<float> RunDense(const KernelTable& kernels) {
    std::vector<float> by_row;
    for (int32_t r = 0; r < rows_; ++r) {
      for (int32_t j = 0; j < top_k_; ++j) {
        const auto e = static_cast<size_t>(experts_[static_cast<size_t>(r * top_k_ + j)]);
        const InputMatrix mid(operands_.input, 1, kMid, std::vector<float>(kMid));
        std::vector<float> y(kOut);
        MakePool(1)->Run([&](device::Worker& worker) {
          LinearSwiGlu(worker, kernels, x_->view().Rows(r, 1), gate_up_views_[e], mid.writable());
          Linear(worker, kernels, mid.view(), down_views_[e], MatView<float>(y.data(), 1, kOut));
        });
        by_row.insert(by_row.end(), y.begin(), y.end());
      }
    }
    return by_row;
  }

 private:
  static constexpr int32_t kIn = 34;
  static constexpr int32_t kMid = 48;
  static constexpr int32_t kOut = 72;
  Random random_;
  Operands operands_;
  int32_t num_experts_;
  int32_t rows_;
  int32_t top_k_;
  std::vector<std::unique_ptr<PackedMatrix>> gate_up_, down_;
  std::vector<PackedWeight> gate_up_views_, down_views_;
  std::unique_ptr<InputMatrix> x_;
  std::vector<int32_t> experts_;

 public:
  size_t FloatsPerRow() const { return static_cast<size_t>(top_k_) * kOut; }
};

// NUM-1: an expert's output for a row is that of the dense operation, whoever else chose the expert.
TEST_P(LinearTest, Num1_GroupedExperts_SameBitsAsDenseAloneAndTogether) {
  for (const Operands& operands : OperandsOf(kernels())) {
    for (const auto& [experts, rows, top_k] : {std::tuple{8, 23, 2}, {3, 9, 3}, {32, 5, 4}, {1, 4, 1}}) {
      Moe moe(static_cast<uint64_t>(experts), operands, experts, rows, top_k);
      const std::vector<float> dense = moe.RunDense(kernels());
      for (int32_t workers : {1, 2, 3, 5}) EXPECT_TRUE(SameBits(moe.Run(kernels(), workers, 0, rows), dense)) << workers << " workers";
      for (int32_t first = 0; first < rows; first += 2) {
        const int32_t count = std::min(3, rows - first);
        const std::vector<float> part = moe.Run(kernels(), 2, first, count);
        EXPECT_EQ(std::memcmp(part.data(), dense.data() + static_cast<size_t>(first) * moe.FloatsPerRow(), part.size() * 4), 0)
            << "rows " << first << "+" << count;
      }
    }
  }
}

}  // namespace
}  // namespace avocet::ops
