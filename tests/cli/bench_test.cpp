#include "cli/bench.h"

#include <gtest/gtest.h>

namespace avocet::cli {
namespace {

TEST(Percentile, Values_AreInterpolatedLinearly) {
  // numpy.percentile([4, 1, 3, 2], [0, 10, 25, 50, 90, 100])
  const std::vector<double> values = {4, 1, 3, 2};
  EXPECT_DOUBLE_EQ(Percentile(values, 0), 1);
  EXPECT_DOUBLE_EQ(Percentile(values, 10), 1.3);
  EXPECT_DOUBLE_EQ(Percentile(values, 25), 1.75);
  EXPECT_DOUBLE_EQ(Percentile(values, 50), 2.5);
  EXPECT_DOUBLE_EQ(Percentile(values, 90), 3.7);
  EXPECT_DOUBLE_EQ(Percentile(values, 100), 4);
  EXPECT_DOUBLE_EQ(Percentile({7}, 99), 7);
}

}  // namespace
}  // namespace avocet::cli
