// exp, sigmoid and silu of every family against double, reached through the kernels that use them.
#include <algorithm>

#include "ops_test_util.h"

namespace avocet::ops {
namespace {

using MathTest = FamilyTest;
AVOCET_ALL_FAMILIES(MathTest);

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

double UlpsApart(float got, double want) {
  const auto nearest = static_cast<float>(want);
  const double ulp = static_cast<double>(std::nextafter(std::abs(nearest), kInf)) - static_cast<double>(std::abs(nearest));
  return std::abs(static_cast<double>(got) - want) / ulp;
}

float Exp(const KernelTable& kernels, float x) {
  return kernels.sum_exp(&x, 1, 0.0f);
}
float Silu(const KernelTable& kernels, float x) {
  const float one = 1.0f;
  float out = 0;
  kernels.conv_silu({.num_tokens = 1, .channels = 1, .taps = 1, .x = &x, .x_ld = 1, .weight = &one, .out = &out, .out_ld = 1});
  return out;
}
float Sigmoid(const KernelTable& kernels, float x) {
  const float one = 1.0f;
  float out = 0;
  kernels.attention_gate({.acc = &one, .sum = 1.0f, .gate = &x, .size = 1, .out = reinterpret_cast<std::byte*>(&out)});
  return out;
}

TEST_P(MathTest, Exp_NormalResults_WithinTwoUlps) {
  double worst = 0;
  float worst_x = 0;
  for (double x = -87.33; x < 88.72; x += 0.000917) {
    const auto at = static_cast<float>(x);
    const double ulps = UlpsApart(Exp(kernels(), at), std::exp(static_cast<double>(at)));
    if (ulps > worst) worst = ulps, worst_x = at;
  }
  EXPECT_LE(worst, 2.0) << "at " << worst_x;
}

TEST_P(MathTest, Exp_Edges_FollowTheLimits) {
  EXPECT_EQ(Exp(kernels(), 0.0f), 1.0f);
  EXPECT_EQ(Exp(kernels(), -kInf), 0.0f);
  EXPECT_EQ(Exp(kernels(), kInf), kInf);
  EXPECT_EQ(Exp(kernels(), 1e30f), kInf);
  EXPECT_EQ(Exp(kernels(), 89.0f), kInf);
  EXPECT_TRUE(std::isnan(Exp(kernels(), kNan)));
  // Below the smallest normal number the result may be flushed to zero, never be negative or large.
  for (float x : {-88.0f, -95.0f, -104.0f, -1e30f}) {
    EXPECT_GE(Exp(kernels(), x), 0.0f);
    EXPECT_LE(Exp(kernels(), x), 0x1p-126f);
  }
}

TEST_P(MathTest, Silu_AllSizes_WithinFourUlps) {
  // exp errs by 2 ulps, the sum and the quotient by half an ulp each; near -87 the quotient itself is at the edge of the normal range.
  double worst = 0;
  float worst_x = 0;
  for (double x = -80; x < 200; x += 0.0013) {
    const auto at = static_cast<float>(x);
    const double want = static_cast<double>(at) / (1.0 + std::exp(-static_cast<double>(at)));
    const double ulps = want == 0 ? 0 : UlpsApart(Silu(kernels(), at), want);
    if (ulps > worst) worst = ulps, worst_x = at;
  }
  EXPECT_LE(worst, 4.0) << "at " << worst_x;
  EXPECT_EQ(Silu(kernels(), 0.0f), 0.0f);
  EXPECT_EQ(Silu(kernels(), 1e30f), 1e30f);
  EXPECT_NEAR(Silu(kernels(), -1e30f), 0.0f, 0x1p-120f);
  EXPECT_TRUE(std::isnan(Silu(kernels(), kNan)));
}

TEST_P(MathTest, Sigmoid_AllSizes_WithinFourUlps) {
  double worst = 0;
  float worst_x = 0;
  for (double x = -80; x < 200; x += 0.0013) {
    const auto at = static_cast<float>(x);
    const double ulps = UlpsApart(Sigmoid(kernels(), at), 1.0 / (1.0 + std::exp(-static_cast<double>(at))));
    if (ulps > worst) worst = ulps, worst_x = at;
  }
  EXPECT_LE(worst, 4.0) << "at " << worst_x;
  EXPECT_EQ(Sigmoid(kernels(), kInf), 1.0f);
  EXPECT_NEAR(Sigmoid(kernels(), -kInf), 0.0f, 0x1p-120f);
  EXPECT_TRUE(std::isnan(Sigmoid(kernels(), kNan)));
}

// NUM-1: a lane's result does not depend on its position, its neighbours or the tail it stands in.
TEST_P(MathTest, Num1_SiluOfALane_IsTheSameBitsAtEveryPosition) {
  Random random(0x51);
  for (int trial = 0; trial < 40; ++trial) {
    const float x = random.Uniform(-90, 90);
    const float alone = Silu(kernels(), x);
    for (int32_t channels : {1, 5, 15, 16, 17, 33}) {
      for (int32_t position : {0, channels / 2, channels - 1}) {
        std::vector<float> row = random.Floats(static_cast<size_t>(channels), -90, 90);
        row[static_cast<size_t>(position)] = x;
        const std::vector<float> ones(static_cast<size_t>(channels), 1.0f);
        std::vector<float> out(static_cast<size_t>(channels));
        kernels().conv_silu({.num_tokens = 1,
                             .channels = channels,
                             .taps = 1,
                             .x = row.data(),
                             .x_ld = channels,
                             .weight = ones.data(),
                             .out = out.data(),
                             .out_ld = channels});
        EXPECT_EQ(std::bit_cast<uint32_t>(out[static_cast<size_t>(position)]), std::bit_cast<uint32_t>(alone))
            << x << " in lane " << position << " of " << channels;
      }
    }
  }
}

}  // namespace
}  // namespace avocet::ops
