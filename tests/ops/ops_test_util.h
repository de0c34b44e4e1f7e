// What the kernel tests share: seeded random data, buffers whose surroundings are poisoned, packed matrices, families, worker pools.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/bf16.h"
#include "base/check.h"
#include "device/cpu_features.h"
#include "device/worker_pool.h"
#include "ops/kernel_choice.h"
#include "ops/packed_weight.h"
#include "ops/product_input.h"

namespace avocet::ops {

// Unit roundoff of f32: one operation errs by at most kUnit times its result. A sum of n products errs by at most about n * kUnit
// times the sum of their absolute values, in any order.
inline constexpr double kUnit = 0x1p-24;
// One rounding to bf16, and one more when the f32 values before it fall on different sides of a tie.
inline constexpr double kBf16Step = 0x1p-7;

// splitmix64: the same numbers everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  int32_t Below(int32_t n) { return static_cast<int32_t>(Next() % static_cast<uint64_t>(n)); }
  int32_t Between(int32_t low, int32_t high) { return low + Below(high - low + 1); }
  float Uniform(float low, float high) { return low + (high - low) * static_cast<float>(Next() >> 40) * 0x1p-24f; }
  std::vector<float> Floats(size_t count, float low = -1.0f, float high = 1.0f) {
    std::vector<float> values(count);
    for (float& value : values) value = Uniform(low, high);
    return values;
  }

 private:
  uint64_t state_;
};

// `count` elements that start `offset` elements after a 64-byte border, with poison (NaN in both formats) on both sides.
template <typename T>
class Guarded {
 public:
  explicit Guarded(size_t count, size_t offset = 0) : count_(count), offset_(offset), memory_(Elements(count + offset) + 16) {
    std::memset(memory_.data(), 0xff, memory_.size() * sizeof(Line));
  }
  T* data() { return reinterpret_cast<T*>(memory_.data() + 8) + offset_; }
  const T* data() const { return reinterpret_cast<const T*>(memory_.data() + 8) + offset_; }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  size_t count() const { return count_; }
  std::byte* bytes() { return reinterpret_cast<std::byte*>(data()); }
  const std::byte* bytes() const { return reinterpret_cast<const std::byte*>(data()); }

  bool PoisonIsIntact() const {
    const auto* begin = reinterpret_cast<const unsigned char*>(memory_.data());
    const auto* end = begin + memory_.size() * sizeof(Line);
    const auto* used = reinterpret_cast<const unsigned char*>(data());
    for (const auto* p = begin; p != end; ++p) {
      if ((p < used || p >= used + count_ * sizeof(T)) && *p != 0xff) return false;
    }
    return true;
  }

 private:
  struct alignas(64) Line {
    std::array<unsigned char, 64> bytes;
  };
  static size_t Elements(size_t count) { return (count * sizeof(T) + sizeof(Line) - 1) / sizeof(Line); }
  size_t count_;
  size_t offset_;
  std::vector<Line> memory_;
};

template <typename T>
bool SameBits(const T& a, const T& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
}

inline float RoundToBf16(float x) {
  return ToF32(ToBf16(x));
}

inline float ReadAs(InputType type, const std::byte* row, int32_t i) {
  if (type == InputType::kF32) {
    float value;
    std::memcpy(&value, row + static_cast<size_t>(i) * 4, 4);
    return value;
  }
  Bf16 value;
  std::memcpy(&value.bits, row + static_cast<size_t>(i) * 2, 2);
  return ToF32(value);
}

inline void WriteAs(InputType type, std::byte* row, int32_t i, float x) {
  if (type == InputType::kF32) {
    std::memcpy(row + static_cast<size_t>(i) * 4, &x, 4);
  } else {
    const uint16_t bits = ToBf16(x).bits;
    std::memcpy(row + static_cast<size_t>(i) * 2, &bits, 2);
  }
}

// A packed matrix with its memory, from plain f32 rows [out, in].
class PackedMatrix {
 public:
  PackedMatrix(WeightFormat format, int32_t out_features, int32_t in_features, const std::vector<float>& rows)
      : memory_(PackedBytes(format, out_features, in_features)) {
    weight_ = {format, out_features, in_features, memory_.bytes()};
    for (int32_t panel = 0; panel < weight_.num_panels(); ++panel) {
      const std::byte* columns[kPanelCols];
      for (int32_t c = 0; c < kPanelCols; ++c) {
        const int32_t out = panel * kPanelCols + c;
        const float* row = rows.data() + static_cast<size_t>(out) * static_cast<size_t>(in_features);
        columns[c] = out < out_features ? reinterpret_cast<const std::byte*>(row) : nullptr;
      }
      PackPanel(format, SourceType::kF32, columns, in_features,
                memory_.bytes() + static_cast<size_t>(panel) * PanelBytes(format, in_features));
    }
  }
  const PackedWeight& weight() const { return weight_; }

 private:
  Guarded<std::byte> memory_;
  PackedWeight weight_;
};

// Rows of a product's left operand: 64-byte aligned rows, zero padding up to an even count, NaN behind it.
class InputMatrix {
 public:
  InputMatrix(InputType type, int32_t rows, int32_t cols, const std::vector<float>& values)
      : memory_(static_cast<size_t>(rows) * static_cast<size_t>((cols + 31) / 32 * 32) * InputBytes(type)) {
    view_ = {type, memory_.bytes(), rows, cols, (cols + 31) / 32 * 32};
    for (int32_t r = 0; r < rows; ++r) {
      for (int32_t c = 0; c < cols; ++c) {
        WriteAs(type, view_.row(r), c, values[static_cast<size_t>(r) * static_cast<size_t>(cols) + static_cast<size_t>(c)]);
      }
      if (cols % 2 != 0) WriteAs(type, view_.row(r), cols, 0.0f);
    }
  }
  InputView view() const { return {view_.type, view_.data, view_.rows, view_.cols, view_.ld}; }
  const MutableInputView& writable() const { return view_; }
  std::vector<std::byte> Row(int32_t r) const {
    return {view_.row(r), view_.row(r) + static_cast<size_t>(view_.cols) * InputBytes(view_.type)};
  }

 private:
  Guarded<std::byte> memory_;
  MutableInputView view_;
};

inline std::unique_ptr<device::WorkerPool> MakePool(int32_t num_workers) {
  // Unpinned, and asleep soon: a test has more workers than the machine has cores.
  device::WorkerPoolOptions options;
  options.cpus.assign(static_cast<size_t>(num_workers), -1);
  options.spin_us = 5;
  auto pool = device::WorkerPool::Create(options);
  CHECK(pool.has_value(), "{}", pool.error().message);
  return *std::move(pool);
}

// A test per kernel family; one that this machine lacks is skipped by name.
class FamilyTest : public testing::TestWithParam<device::Isa> {
 protected:
  void SetUp() override {
    if (!device::DetectCpu().Supports(GetParam())) GTEST_SKIP() << "this CPU lacks " << device::IsaName(GetParam());
  }
  const KernelTable& kernels() const { return KernelsFor(GetParam()); }

 public:
  static std::string Name(const testing::TestParamInfo<device::Isa>& family) { return std::string(device::IsaName(family.param)); }
};

#define AVOCET_ALL_FAMILIES(suite)                                                                                                 \
  INSTANTIATE_TEST_SUITE_P(Family, suite,                                                                                          \
                           testing::Values(device::Isa::kRef, device::Isa::kAvx2, device::Isa::kAvx512, device::Isa::kAvx512Bf16), \
                           FamilyTest::Name)

// The worst element of a comparison, kept for the message.
class Worst {
 public:
  void Compare(double got, double want, double tolerance, const std::string& where) {
    const double error = std::abs(got - want);
    const bool same = got == want || (std::isnan(got) && std::isnan(want));
    const double ratio = same ? 0.0 : (std::isfinite(error) ? error / tolerance : std::numeric_limits<double>::infinity());
    if (ratio > ratio_) {
      ratio_ = ratio;
      text_ = fmt::format("{}: got {:.9g}, want {:.9g}, error {:.3g}, tolerance {:.3g}", where, got, want, error, tolerance);
    }
  }
  double ratio() const { return ratio_; }
  const std::string& text() const { return text_; }

 private:
  double ratio_ = 0;
  std::string text_;
};

}  // namespace avocet::ops
