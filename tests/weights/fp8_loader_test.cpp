// FP8 releases: E4M3 with a scale for every block of weights, bf16 in memory or int8 when asked.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/bf16.h"
#include "support/safetensors_writer.h"
#include "weights/loader.h"

namespace avocet::weights {
namespace {

using test::Bf16Bytes;
using test::SafetensorsFile;
using test::TempDir;
using testing::HasSubstr;

constexpr int64_t kRows = 40;
constexpr int64_t kCols = 21;
constexpr int32_t kBlock = 8;

// Every value of the format, by its definition: sign, exponent of bias 7, three bits of mantissa.
TEST(F8E4M3, EveryValue) {
  for (int bits = 0; bits < 256; ++bits) {
    const float got = ToF32(F8E4M3{static_cast<uint8_t>(bits)});
    const int exponent = bits >> 3 & 15;
    const double mantissa = (bits & 7) / 8.0;
    if ((bits & 127) == 127) {
      EXPECT_TRUE(std::isnan(got));
      continue;
    }
    const double magnitude = exponent == 0 ? std::ldexp(mantissa, -6) : std::ldexp(1 + mantissa, exponent - 7);
    EXPECT_EQ(static_cast<double>(got), bits < 128 ? magnitude : -magnitude) << bits;
  }
  EXPECT_EQ(ToF32(F8E4M3{0x7e}), 448.0f);
}

uint8_t BitsOf(int64_t row, int64_t col) {
  const auto bits = static_cast<uint8_t>(row * 31 + col * 7);
  return (bits & 127) == 127 ? uint8_t{0x38} : bits;
}

float ScaleOf(int64_t row, int64_t col) {
  return ToF32(ToBf16(0.001f * static_cast<float>(1 + row / kBlock * 3 + col / kBlock)));
}

std::vector<test::TensorData> Tensors() {
  std::string bytes;
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kCols; ++c) bytes += static_cast<char>(BitsOf(r, c));
  }
  std::vector<float> scales;
  for (int64_t r = 0; r < kRows; r += kBlock) {
    for (int64_t c = 0; c < kCols; c += kBlock) scales.push_back(ScaleOf(r, c));
  }
  return {{"w.weight", "F8_E4M3", {kRows, kCols}, bytes}, {"w.weight_scale_inv", "BF16", {5, 3}, Bf16Bytes(scales)}};
}

struct Loaded {
  ops::PackedWeight weight;
  device::Arena arena;
};

Result<Loaded> Load(const std::vector<test::TensorData>& tensors, const MatrixSpec& spec, bool rounds_floats = false) {
  TempDir dir;
  dir.Write("model.safetensors", SafetensorsFile(tensors));
  AVOCET_TRY(const Checkpoint checkpoint, Checkpoint::Open(dir.path()));
  Loader loader(checkpoint, WeightPolicy::kExact,
                {.description = nullptr, .by_dtype = false, .fp8_block = kBlock, .rounds_floats = rounds_floats});
  Loaded loaded;
  AVOCET_TRY_VOID(loader.AddMatrix(spec, &loaded.weight));
  device::WorkerPoolOptions options;
  options.cpus.assign(2, -1);
  const auto pool = device::WorkerPool::Create(options).value();
  AVOCET_TRY(loaded.arena, loader.Load(*pool, {}));
  return loaded;
}

TEST(Fp8Loader, Blocks_ScaleTheirWeights) {
  const auto loaded = Load(Tensors(), {kCols, RowOrder::kConcat, {{"w.weight", 0, kRows}}});
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->weight.format, ops::WeightFormat::kBf16);
  for (int32_t r = 0; r < kRows; ++r) {
    for (int32_t c = 0; c < kCols; ++c) {
      EXPECT_EQ(ops::PackedElement(loaded->weight, r, c), ToF32(ToBf16(ToF32(F8E4M3{BitsOf(r, c)}) * ScaleOf(r, c)))) << r << ", " << c;
    }
  }
}

// Gate and up in one tensor: the second half begins inside a block of rows.
TEST(Fp8Loader, HalvesOfOneTensor_KeepItsGrid) {
  const int64_t half = kRows / 2;
  static_assert(kRows / 2 % kBlock != 0);
  const std::vector<int64_t> shape = {kRows, kCols};
  const auto loaded = Load(Tensors(), {kCols, RowOrder::kGateUp, {{"w.weight", 0, half, shape}, {"w.weight", half, half, shape}}});
  ASSERT_TRUE(loaded) << loaded.error().message;
  for (int32_t i = 0; i < half; ++i) {
    for (int32_t c = 0; c < kCols; ++c) {
      const int32_t gate = i / 16 * 32 + i % 16;
      const auto want = [&](int64_t r) { return ToF32(ToBf16(ToF32(F8E4M3{BitsOf(r, c)}) * ScaleOf(r, c))); };
      EXPECT_EQ(ops::PackedElement(loaded->weight, gate, c), want(i)) << i << ", " << c;
      EXPECT_EQ(ops::PackedElement(loaded->weight, gate + 16, c), want(half + i)) << i << ", " << c;
    }
  }
}

TEST(Fp8Loader, Int8AtLoad_RoundsTheScaledValues) {
  const auto loaded = Load(Tensors(), {kCols, RowOrder::kConcat, {{"w.weight", 0, kRows}}}, true);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->weight.format, ops::WeightFormat::kInt8);
  for (int32_t r = 0; r < kRows; ++r) {
    float largest = 0;
    for (int32_t c = 0; c < kCols; ++c) largest = std::max(largest, std::fabs(ToF32(F8E4M3{BitsOf(r, c)}) * ScaleOf(r, c)));
    for (int32_t c = 0; c < kCols; ++c) {
      EXPECT_NEAR(ops::PackedElement(loaded->weight, r, c), ToF32(F8E4M3{BitsOf(r, c)}) * ScaleOf(r, c), largest / 127 * 0.5001f);
    }
  }
}

// Larger than what a worker reads at once: tasks begin and end inside a block of rows.
TEST(Fp8Loader, MatrixOfSeveralTasks_KeepsItsGrid) {
  constexpr int64_t kManyRows = 1500;
  constexpr int64_t kManyCols = 1100;
  constexpr int64_t kWide = 128;
  const auto scale_of = [](int64_t r, int64_t c) { return ToF32(ToBf16(0.5f + static_cast<float>((r / kWide * 9 + c / kWide) % 50))); };
  std::string bytes;
  std::vector<float> scales;
  for (int64_t r = 0; r < kManyRows; ++r) {
    for (int64_t c = 0; c < kManyCols; ++c) bytes += static_cast<char>(BitsOf(r, c));
  }
  for (int64_t r = 0; r < kManyRows; r += kWide) {
    for (int64_t c = 0; c < kManyCols; c += kWide) scales.push_back(scale_of(r, c));
  }
  TempDir dir;
  dir.Write("model.safetensors", SafetensorsFile({{"w.weight", "F8_E4M3", {kManyRows, kManyCols}, bytes},
                                                  {"w.weight_scale_inv", "BF16", {12, 9}, Bf16Bytes(scales)}}));
  const auto checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  Loader loader(*checkpoint, WeightPolicy::kExact, {.description = nullptr, .by_dtype = false, .fp8_block = kWide, .rounds_floats = false});
  ops::PackedWeight weight;
  ASSERT_TRUE(loader.AddMatrix({kManyCols, RowOrder::kConcat, {{"w.weight", 0, kManyRows}}}, &weight));
  device::WorkerPoolOptions options;
  options.cpus.assign(2, -1);
  const auto pool = device::WorkerPool::Create(options).value();
  const auto arena = loader.Load(*pool, {});
  ASSERT_TRUE(arena) << arena.error().message;
  for (int32_t r = 0; r < kManyRows; ++r) {
    for (int32_t c = 0; c < kManyCols; ++c) {
      ASSERT_EQ(ops::PackedElement(weight, r, c), ToF32(ToBf16(ToF32(F8E4M3{BitsOf(r, c)}) * scale_of(r, c)))) << r << ", " << c;
    }
  }
}

TEST(Fp8Loader, Spoiled_RefusedByName) {
  const MatrixSpec spec = {kCols, RowOrder::kConcat, {{"w.weight", 0, kRows}}};
  auto tensors = Tensors();
  tensors.pop_back();
  EXPECT_THAT(Load(tensors, spec).error().message, HasSubstr("has no tensor w.weight_scale_inv"));
  tensors = Tensors();
  tensors[1].shape = {3, 5};
  EXPECT_THAT(Load(tensors, spec).error().message, testing::AllOf(HasSubstr("w.weight_scale_inv"), HasSubstr("[5, 3]")));
  tensors = Tensors();
  tensors[1].bytes = Bf16Bytes(std::vector<float>(15, INFINITY));
  EXPECT_THAT(Load(tensors, spec).error().message, testing::AllOf(HasSubstr("w.weight_scale_inv"), HasSubstr("finite")));
  tensors = Tensors();
  tensors[0].shape = {2, kRows / 2, kCols};
  EXPECT_THAT(Load(tensors, {kCols, RowOrder::kConcat, {{"w.weight", 0, kRows, {2, kRows / 2, kCols}}}}).error().message,
              HasSubstr("stored one by one"));
}

}  // namespace
}  // namespace avocet::weights
