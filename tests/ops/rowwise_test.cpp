// Norms, router, grouping, combination and reductions: every family against double, every worker count against one.
#include "ops/rowwise.h"

#include <algorithm>
#include <numeric>

#include "ops_test_util.h"

namespace avocet::ops {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

using RowwiseTest = FamilyTest;
AVOCET_ALL_FAMILIES(RowwiseTest);

std::vector<int32_t> Sizes() {
  std::vector<int32_t> sizes(33);
  std::iota(sizes.begin(), sizes.end(), 1);
  sizes.insert(sizes.end(), {47, 63, 64, 65, 100, 127, 128, 129, 255, 1000, 2048, 4099});
  return sizes;
}

TEST_P(RowwiseTest, Num2_Norm_EverySizeAgreesWithDouble) {
  Random random(21);
  for (int32_t size : Sizes()) {
    for (const InputType out_type : {InputType::kF32, InputType::kBf16}) {
      for (const bool has_gate : {false, true}) {
        const auto n = static_cast<size_t>(size);
        Guarded<float> x(n, 1), weight(n, 3), gate(n, 2);
        double squares = 0;
        // Also so small that eps counts.
        const float size_of_x = size % 3 == 0 ? 1e-3f : 3.0f;
        for (size_t i = 0; i < n; ++i) {
          x[i] = random.Uniform(-size_of_x, size_of_x);
          weight[i] = random.Uniform(-2, 2);
          gate[i] = random.Uniform(-20, 20);
          squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
        }
        Guarded<std::byte> out(n * InputBytes(out_type), 4);
        kernels().norm({.x = x.data(),
                        .weight = weight.data(),
                        .gate = has_gate ? gate.data() : nullptr,
                        .size = size,
                        .eps = 1e-6f,
                        .out_type = out_type,
                        .out = out.bytes()});
        ASSERT_TRUE(out.PoisonIsIntact()) << size;
        Worst worst;
        for (size_t i = 0; i < n; ++i) {
          const auto g = static_cast<double>(gate[i]);
          const double want = static_cast<double>(x[i]) / std::sqrt(squares / size + 1e-6) * static_cast<double>(weight[i]) *
                              (has_gate ? g / (1 + std::exp(-g)) : 1.0);
          // Half the relative error of the sum of squares (at most size roundings), eight more operations, silu's 4 ulps.
          const double relative = (size / 2.0 + 16) * kUnit + (out_type == InputType::kBf16 ? kBf16Step : 0);
          worst.Compare(ReadAs(out_type, out.bytes(), static_cast<int32_t>(i)), want, relative * std::abs(want) + 0x1p-120,
                        fmt::format("element {}", i));
        }
        ASSERT_LE(worst.ratio(), 1.0) << kernels().name << " size " << size << " gate " << has_gate << " " << worst.text();
      }
    }
  }
}

TEST_P(RowwiseTest, Norm_InPlace_IsTheSame) {
  Random random(22);
  std::vector<float> x = random.Floats(77);
  const std::vector<float> weight = random.Floats(77);
  std::vector<float> apart(77);
  kernels().norm({.x = x.data(), .weight = weight.data(), .size = 77, .eps = 1e-6f, .out = reinterpret_cast<std::byte*>(apart.data())});
  kernels().norm({.x = x.data(), .weight = weight.data(), .size = 77, .eps = 1e-6f, .out = reinterpret_cast<std::byte*>(x.data())});
  EXPECT_TRUE(SameBits(x, apart));
}

// NUM-1: replicated, shared over any number of workers, or picked by index.
TEST_P(RowwiseTest, Num1_RmsNormOfARow_SameBitsInAnyCompany) {
  Random random(23);
  constexpr int32_t kRows = 9;
  constexpr int32_t kCols = 100;
  std::vector<float> x = random.Floats(kRows * kCols, -4, 4);
  const std::vector<float> weight = random.Floats(kCols);
  std::vector<float> want(kRows * kCols);
  for (int32_t r = 0; r < kRows; ++r) {
    kernels().norm({.x = x.data() + r * kCols,
                    .weight = weight.data(),
                    .size = kCols,
                    .eps = 1e-6f,
                    .out = reinterpret_cast<std::byte*>(want.data() + r * kCols)});
  }
  for (int32_t workers : {1, 2, 3, 5}) {
    auto arena = device::Arena::Create("test", size_t{2} << 20);
    ASSERT_TRUE(arena.has_value());
    const ProductInput out(*arena, InputType::kF32, kRows, kCols, workers);
    const auto pool = MakePool(workers);
    for (int32_t rows : {1, 4, 5, 9}) {
      pool->Run([&](device::Worker& worker) {
        RmsNorm(worker, kernels(), MatView<const float>(x.data(), rows, kCols), weight, 1e-6f, out);
        const InputView view = out.Replicated(worker, rows);
        for (int32_t r = 0; r < rows; ++r) EXPECT_EQ(std::memcmp(view.row(r), want.data() + r * kCols, kCols * 4), 0);
        worker.Barrier();
      });
    }
    const std::array<int32_t, 6> picked = {8, 0, 3, 3, 7, 1};
    for (const size_t count : {size_t{2}, picked.size()}) {
      pool->Run([&](device::Worker& worker) {
        RmsNormRows(worker, kernels(), MatView<const float>(x.data(), kRows, kCols), std::span(picked).first(count), weight, 1e-6f, out);
        const InputView view = out.Replicated(worker, static_cast<int32_t>(count));
        for (size_t i = 0; i < count; ++i)
          EXPECT_EQ(std::memcmp(view.row(static_cast<int32_t>(i)), want.data() + picked[i] * kCols, kCols * 4), 0);
        worker.Barrier();
      });
    }
  }
}

TEST_P(RowwiseTest, Num2_Reductions_EverySizeAgreesWithDouble) {
  Random random(24);
  for (int32_t size : Sizes()) {
    const auto n = static_cast<size_t>(size);
    Guarded<float> a(n, 1), b(n, 3);
    double dot = 0, absolute = 0, sum_exp = 0;
    float max = -kInf;
    for (size_t i = 0; i < n; ++i) {
      a[i] = random.Uniform(-3, 3);
      b[i] = random.Uniform(-3, 3);
      const double product = static_cast<double>(a[i]) * static_cast<double>(b[i]);
      dot += product;
      absolute += std::abs(product);
      max = std::max(max, a[i]);
    }
    for (size_t i = 0; i < n; ++i) sum_exp += std::exp(static_cast<double>(a[i]) - static_cast<double>(max));
    EXPECT_NEAR(kernels().dot(a.data(), b.data(), size), dot, (size + 2) * kUnit * absolute) << size;
    // exp errs by 4 units, its argument by one (at most 6 in size), the sum by one per element.
    EXPECT_NEAR(kernels().sum_exp(a.data(), size, max), sum_exp, (size + 12) * kUnit * sum_exp) << size;
    EXPECT_NEAR(LogSumExp(kernels(), std::span<const float>(a.data(), n), max), std::log(sum_exp) + static_cast<double>(max),
                (size + 16) * kUnit * (1 + std::abs(std::log(sum_exp) + static_cast<double>(max))))
        << size;
    std::vector<float> scaled(a.data(), a.data() + n);
    kernels().scale(scaled.data(), size, 1.7f);
    for (size_t i = 0; i < n; ++i) EXPECT_EQ(scaled[i], a[i] * 1.7f);
    ASSERT_TRUE(a.PoisonIsIntact() && b.PoisonIsIntact());
  }
}

TEST_P(RowwiseTest, ArgMax_EveryPlace_LowestIndexAndNoNan) {
  for (int32_t size : {1, 2, 15, 16, 17, 63, 64, 65, 130, 1000}) {
    std::vector<float> row(static_cast<size_t>(size), -2.0f);
    for (int32_t place = 0; place < size; place += 1 + size / 40) {
      std::vector<float> one = row;
      one[static_cast<size_t>(place)] = 5.0f;
      one.back() = 5.0f;
      EXPECT_EQ(ArgMax(kernels(), one).index, place) << size;
      EXPECT_EQ(ArgMax(kernels(), one).value, 5.0f);
      one[0] = kNan;
      const int32_t without_first = place > 0 ? place : size > 1 ? size - 1 : -1;
      EXPECT_EQ(ArgMax(kernels(), one).index, without_first) << size;
    }
    std::vector<float> nothing(static_cast<size_t>(size), kNan);
    EXPECT_EQ(ArgMax(kernels(), nothing).index, -1) << size;
    nothing.back() = -kInf;
    EXPECT_EQ(ArgMax(kernels(), nothing).index, size - 1) << size;
    nothing[0] = kInf;
    EXPECT_EQ(ArgMax(kernels(), nothing).index, 0) << size;
  }
  EXPECT_EQ(ArgMax(kernels(), {}).index, -1);
}

TEST_P(RowwiseTest, RouteTopK_AgreesWithAFullSort) {
  Random random(25);
  for (const auto& [num_experts, top_k] : {std::pair{4, 1}, {8, 8}, {33, 5}, {512, 10}}) {
    for (int trial = 0; trial < 50; ++trial) {
      std::vector<float> logits(static_cast<size_t>(num_experts));
      // Few distinct values, so that ties are common.
      for (float& x : logits) x = static_cast<float>(random.Below(7)) - 3.0f;
      std::vector<int32_t> order(logits.size());
      std::iota(order.begin(), order.end(), 0);
      std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        return std::pair(-logits[static_cast<size_t>(a)], a) < std::pair(-logits[static_cast<size_t>(b)], b);
      });
      order.resize(static_cast<size_t>(top_k));
      std::sort(order.begin(), order.end());
      double sum = 0;
      for (int32_t e : order) sum += std::exp(static_cast<double>(logits[static_cast<size_t>(e)]));
      std::vector<int32_t> experts(static_cast<size_t>(top_k));
      std::vector<float> weights(static_cast<size_t>(top_k));
      RouteTopK(kernels(), MatView<const float>(logits.data(), 1, num_experts), top_k, MatView<int32_t>(experts.data(), 1, top_k),
                MatView<float>(weights.data(), 1, top_k));
      ASSERT_EQ(experts, order);
      for (size_t j = 0; j < order.size(); ++j) {
        const double want = std::exp(static_cast<double>(logits[static_cast<size_t>(order[j])])) / sum;
        ASSERT_NEAR(weights[j], want, 2 * kUnit);
      }
    }
  }
}

TEST(RouteTopK_, NanLogits_StillChooseDistinctExperts) {
  const std::vector<float> logits = {kNan, kNan, 1.0f, kNan};
  std::vector<int32_t> experts(3);
  std::vector<float> weights(3);
  RouteTopK(kRefKernels, MatView<const float>(logits.data(), 1, 4), 3, MatView<int32_t>(experts.data(), 1, 3),
            MatView<float>(weights.data(), 1, 3));
  EXPECT_EQ(experts, (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(weights[2], 1.0f);
}

TEST(GroupByExpert_, SlotsAscendByExpertThenRow) {
  const std::vector<int32_t> experts = {1, 4, 0, 1, 1, 4};  // three rows of two
  std::vector<int32_t> offsets(6), slot_row(6), active(5), slot_of(6);
  const ExpertGroups groups =
      GroupByExpert(MatView<const int32_t>(experts.data(), 3, 2), 5, offsets, slot_row, active, MatView<int32_t>(slot_of.data(), 3, 2));
  EXPECT_EQ(offsets, (std::vector<int32_t>{0, 1, 4, 4, 4, 6}));
  EXPECT_EQ(slot_row, (std::vector<int32_t>{1, 0, 1, 2, 0, 2}));
  EXPECT_EQ(std::vector<int32_t>(groups.active_experts.begin(), groups.active_experts.end()), (std::vector<int32_t>{0, 1, 4}));
  EXPECT_EQ(slot_of, (std::vector<int32_t>{1, 4, 0, 2, 3, 5}));
}

// NUM-1 and the formula: any number of workers, with and without a shared expert.
TEST_P(RowwiseTest, Num1_CombineExperts_SameBitsOnAnyNumberOfWorkers) {
  Random random(26);
  for (const int32_t cols : {3, 16, 250, 256, 700}) {
    constexpr int32_t kRows = 5;
    constexpr int32_t kTopK = 3;
    const auto n = static_cast<size_t>(cols);
    std::vector<float> expert_out = random.Floats(kRows * kTopK * n);
    std::vector<float> shared = random.Floats(kRows * n), hidden = random.Floats(kRows * n), weights = random.Floats(kRows * kTopK);
    std::vector<float> gate = random.Floats(kRows, -5, 5);
    std::vector<int32_t> slot_of(kRows * kTopK);
    for (size_t i = 0; i < slot_of.size(); ++i) slot_of[i] = static_cast<int32_t>((i * 7) % slot_of.size());
    for (const int32_t shared_rows : {0, kRows}) {
      std::vector<float> first;
      for (int32_t workers : {1, 2, 3, 5}) {
        std::vector<float> y = hidden;
        MakePool(workers)->Run([&](device::Worker& worker) {
          CombineExperts(worker, kernels(), MatView<const float>(expert_out.data(), kRows * kTopK, cols),
                         MatView<const int32_t>(slot_of.data(), kRows, kTopK), MatView<const float>(weights.data(), kRows, kTopK),
                         MatView<const float>(shared.data(), shared_rows, cols), MatView<const float>(gate.data(), shared_rows, 1),
                         MatView<float>(y.data(), kRows, cols));
        });
        if (first.empty()) first = y;
        EXPECT_TRUE(SameBits(y, first));
      }
      for (size_t r = 0; r < kRows; ++r) {
        for (size_t c = 0; c < n; ++c) {
          double want = static_cast<double>(hidden[r * n + c]);
          for (size_t j = 0; j < kTopK; ++j) {
            const auto slot = static_cast<size_t>(slot_of[r * kTopK + j]);
            want += static_cast<double>(weights[r * kTopK + j]) * static_cast<double>(expert_out[slot * n + c]);
          }
          if (shared_rows > 0) want += static_cast<double>(shared[r * n + c]) / (1 + std::exp(-static_cast<double>(gate[r])));
          ASSERT_NEAR(first[r * n + c], want, 16 * kUnit * 5);  // values up to 5, at most 16 roundings
        }
      }
    }
  }
}

TEST(GatherEmbedding_, RowsOfTheTable_OnAnyNumberOfWorkers) {
  Random random(27);
  const PackedMatrix table(WeightFormat::kBf16, 50, 33, random.Floats(50 * 33));
  const std::vector<int32_t> ids = {0, 49, 17, 17, 3};
  for (int32_t workers : {1, 2, 7}) {
    std::vector<float> out(ids.size() * 33, -9.0f);
    MakePool(workers)->Run(
        [&](device::Worker& worker) { GatherEmbedding(worker, ids, table.weight(), MatView<float>(out.data(), 5, 33)); });
    for (size_t r = 0; r < ids.size(); ++r) {
      for (int32_t c = 0; c < 33; ++c) ASSERT_EQ(out[r * 33 + static_cast<size_t>(c)], PackedElement(table.weight(), ids[r], c));
    }
  }
}

}  // namespace
}  // namespace avocet::ops
