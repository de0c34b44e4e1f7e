// int8 products: the sums are exact, so a family equals `ref` bit for bit where only the epilogue follows, and any batch and number of
// workers gives the same.
#include <algorithm>
#include <limits>

#include "ops/linear.h"
#include "ops/rowwise.h"
#include "ops_test_util.h"

namespace avocet::ops {
namespace {

using Int8Test = FamilyTest;
AVOCET_ALL_FAMILIES(Int8Test);

// A random int8 matrix with random scales and biases; the extreme values are common.
class Int8Matrix {
 public:
  Int8Matrix(Random& random, int32_t out, int32_t in, Int8Input input = {})
      : panels_((PackedBytes(WeightFormat::kInt8, out, in) + 63) / 64) {
    std::vector<std::vector<int8_t>> rows(static_cast<size_t>(out), std::vector<int8_t>(static_cast<size_t>(in)));
    for (auto& row : rows) {
      for (int8_t& q : row) q = static_cast<int8_t>(random.Below(4) == 0 ? (random.Below(2) == 0 ? -128 : 127) : random.Between(-128, 127));
    }
    auto* data = reinterpret_cast<std::byte*>(panels_.data());
    for (int32_t panel = 0; panel * kPanelCols < out; ++panel) {
      const int8_t* columns[kPanelCols] = {};
      float scales[kPanelCols];
      int32_t biases[kPanelCols];
      for (int32_t c = 0; c < kPanelCols; ++c) {
        if (panel * kPanelCols + c < out) columns[c] = rows[static_cast<size_t>(panel * kPanelCols + c)].data();
        scales[c] = random.Uniform(0.001f, 0.02f);
        biases[c] = random.Between(-50'000, 50'000);
      }
      PackInt8Panel(columns, scales, biases, in, data + static_cast<size_t>(panel) * PanelBytes(WeightFormat::kInt8, in));
    }
    weight_ = {WeightFormat::kInt8, out, in, data, input};
  }
  const PackedWeight& weight() const { return weight_; }

 private:
  struct alignas(64) Line {
    std::array<std::byte, 64> bytes;
  };
  std::vector<Line> panels_;
  PackedWeight weight_;
};

// Rows of f32, their int8 form in a family's own storage, and products of it.
class Rows {
 public:
  Rows(const KernelTable& kernels, int32_t rows, int32_t cols, const std::vector<float>& values, Int8Input input, int32_t workers = 1)
      : kernels_(kernels),
        pool_(MakePool(workers)),
        arena_(device::Arena::Create("test", size_t{8} << 20).value()),
        rows_(rows),
        cols_(cols) {
    int8_ = ProductInput(arena_, kernels.int8_input_type, rows, cols, workers);
    const InputView x{InputType::kF32, reinterpret_cast<const std::byte*>(values.data()), rows, cols, cols};
    pool_->Run([&](device::Worker& worker) { QuantizeRows(worker, kernels, x, input, int8_); });
  }
  std::vector<int32_t> Values() {
    std::vector<int32_t> values;
    OnWorker0([&](const InputView& q) {
      for (int32_t r = 0; r < rows_; ++r) {
        for (int32_t c = 0; c < cols_; ++c) values.push_back(Int8ValueAt(q, r, c));
      }
    });
    return values;
  }
  std::vector<float> Scales() {
    std::vector<float> scales;
    OnWorker0([&](const InputView& q) { scales.assign(q.scales, q.scales + rows_); });
    return scales;
  }
  std::vector<float> Linear(const PackedWeight& weight, Accumulate accumulate, int32_t first = 0, int32_t count = -1) {
    const int32_t rows = count < 0 ? rows_ : count;
    std::vector<float> y(static_cast<size_t>(rows) * static_cast<size_t>(weight.out_features), 0.25f);
    const MatView<float> view(y.data(), rows, weight.out_features);
    pool_->Run([&](device::Worker& worker) {
      ops::Linear(worker, kernels_, int8_.Replicated(worker, rows_).Rows(first, rows), weight, view, accumulate);
    });
    return y;
  }
  std::vector<float> SwiGlu(const PackedWeight& gate_up, int32_t intermediate) {
    std::vector<float> y(static_cast<size_t>(rows_) * static_cast<size_t>(intermediate));
    const MutableInputView view{InputType::kF32, reinterpret_cast<std::byte*>(y.data()), rows_, intermediate, intermediate};
    pool_->Run([&](device::Worker& worker) { LinearSwiGlu(worker, kernels_, int8_.Replicated(worker, rows_), gate_up, view); });
    return y;
  }

 private:
  template <typename Fn>
  void OnWorker0(const Fn& fn) {
    pool_->Run([&](device::Worker& worker) {
      if (worker.id() == 0) fn(int8_.Replicated(worker, rows_));
    });
  }

  const KernelTable& kernels_;
  std::unique_ptr<device::WorkerPool> pool_;
  device::Arena arena_;
  ProductInput int8_;
  int32_t rows_;
  int32_t cols_;
};

std::vector<float> RandomRows(Random& random, int32_t rows, int32_t cols) {
  std::vector<float> values = random.Floats(static_cast<size_t>(rows) * static_cast<size_t>(cols), -3, 3);
  for (float& value : values) {
    if (random.Below(8) == 0) value = std::round(value * 4) * 0.5f;  // ties
  }
  return values;
}

TEST_P(Int8Test, Num2_Quantize_EqualsRef) {
  Random random(21);
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const int32_t cols : {1, 3, 4, 15, 16, 17, 63, 64, 100, 1030}) {
    for (const Int8Input input : {Int8Input{}, Int8Input{0.02f, 3}, Int8Input{1.5f, -128}, Int8Input{1e-30f, 0}}) {
      std::vector<float> values = RandomRows(random, 5, cols);
      const auto width = static_cast<size_t>(cols);
      std::fill_n(values.begin(), width, 0.0f);  // a row of zeros
      values[width] = kNan;                      // a row with one NaN
      values[2 * width + width / 2] = kInf;      // an infinity
      values[3 * width] = std::numeric_limits<float>::denorm_min();
      Rows own(kernels(), 5, cols, values, input);
      Rows ref(kRefKernels, 5, cols, values, input);
      EXPECT_EQ(own.Values(), ref.Values()) << cols << ", scale " << input.scale;
      EXPECT_TRUE(SameBits(own.Scales(), ref.Scales())) << cols << ", scale " << input.scale;
    }
  }
}

TEST_P(Int8Test, Num2_Linear_EqualsRefBitForBit) {
  Random random(22);
  for (const auto& [out, in] : {std::pair{500, 70}, {16, 33}, {7, 5}, {1040, 1030}, {48, 4096}}) {
    for (const int32_t rows : {1, 2, 4, 5, 6, 7, 13, 30}) {
      const Int8Matrix matrix(random, out, in);
      const std::vector<float> values = RandomRows(random, rows, in);
      for (const Accumulate accumulate : {Accumulate::kStore, Accumulate::kAdd}) {
        const auto want = Rows(kRefKernels, rows, in, values, {}).Linear(matrix.weight(), accumulate);
        for (const int32_t workers : {1, 3}) {
          EXPECT_TRUE(SameBits(Rows(kernels(), rows, in, values, {}, workers).Linear(matrix.weight(), accumulate), want))
              << rows << " rows, " << out << "x" << in << ", " << workers << " workers";
        }
      }
    }
  }
}

// NUM-1: a row alone, and as part of any batch.
TEST_P(Int8Test, Num1_RowAloneOrInABatch_SameBits) {
  Random random(23);
  constexpr int32_t kRows = 27;
  const Int8Matrix matrix(random, 200, 310);
  Rows rows(kernels(), kRows, 310, RandomRows(random, kRows, 310), {}, 2);
  const std::vector<float> whole = rows.Linear(matrix.weight(), Accumulate::kStore);
  for (int32_t count : {1, 2, 3, 5, 8, 13, 26}) {
    for (int32_t first : {0, kRows - count}) {
      const std::vector<float> part = rows.Linear(matrix.weight(), Accumulate::kStore, first, count);
      EXPECT_EQ(std::memcmp(part.data(), whole.data() + static_cast<size_t>(first) * 200, part.size() * 4), 0) << first << "+" << count;
    }
  }
}

TEST_P(Int8Test, Num2_SwiGlu_AgreesWithRef) {
  Random random(24);
  for (const int32_t intermediate : {16, 24, 100}) {
    for (const int32_t rows : {1, 5, 14}) {
      const Int8Matrix matrix(random, (intermediate + 15) / 16 * 32, 46);
      const std::vector<float> values = RandomRows(random, rows, 46);
      const auto want = Rows(kRefKernels, rows, 46, values, {}).SwiGlu(matrix.weight(), intermediate);
      const auto got = Rows(kernels(), rows, 46, values, {}, 2).SwiGlu(matrix.weight(), intermediate);
      for (size_t i = 0; i < want.size(); ++i) {
        // Gate and up are the same bits; silu errs by the two ulp of Exp and three more operations.
        EXPECT_NEAR(got[i], want[i], 8 * kUnit * std::fabs(want[i]) + 1e-30) << i;
      }
    }
  }
}

}  // namespace
}  // namespace avocet::ops
