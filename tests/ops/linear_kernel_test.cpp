// The product kernels of every family against ref: shapes around the register blocks, tails, strides, gathered rows.
#include <algorithm>

#include "ops_test_util.h"

namespace avocet::ops {
namespace {

using LinearKernel = void (*)(const LinearArgs&);

struct Types {
  InputType input;
  WeightFormat weight;
  const char* name;
};
constexpr std::array kTypes = {Types{InputType::kF32, WeightFormat::kBf16, "f32xbf16"},
                               Types{InputType::kF32, WeightFormat::kF32, "f32xf32"},
                               Types{InputType::kBf16, WeightFormat::kBf16, "bf16xbf16"}};

LinearKernel LinearOf(const KernelTable& kernels, const Types& types) {
  if (types.weight == WeightFormat::kF32) return kernels.linear_f32_f32;
  return types.input == InputType::kF32 ? kernels.linear_f32_bf16 : kernels.linear_bf16_bf16;
}
LinearKernel SwiGluOf(const KernelTable& kernels, const Types& types) {
  if (types.weight == WeightFormat::kF32) return kernels.swiglu_f32_f32;
  return types.input == InputType::kF32 ? kernels.swiglu_f32_bf16 : kernels.swiglu_bf16_bf16;
}

// One product with everything around its operands poisoned: row padding, the space between panels and between output rows.
class Case {
 public:
  Case(uint64_t seed, const Types& types, int32_t rows, int32_t panels, int32_t in_features)
      : random_(seed), types_(types), seed_(seed), rows_(rows), source_rows_(rows + 3), panels_(panels), in_(in_features) {
    even_in_ = (in_ + 1) / 2 * 2;
    x_ld_ = even_in_ + 2 * random_.Below(5);
    x_offset_ = static_cast<size_t>(random_.Below(3));
    panel_bytes_ = PanelBytes(types.weight, in_) + 64 * static_cast<size_t>(random_.Below(3));
    is_gathered_ = random_.Below(2) == 0;
    for (int32_t r = 0; r < rows; ++r) row_index_.push_back(is_gathered_ ? random_.Below(source_rows_) : r);
    x_ = Input(false);
    x_abs_ = Input(true);
    w_ = Weights(false);
    w_abs_ = Weights(true);
  }

  LinearArgs Args(const Guarded<std::byte>& x, const Guarded<std::byte>& w) const {
    LinearArgs args;
    args.x = x.bytes();
    args.x_row_bytes = static_cast<size_t>(x_ld_) * InputBytes(types_.input);
    args.row_index = is_gathered_ ? row_index_.data() : nullptr;
    args.rows = rows_;
    args.in_features = in_;
    args.panels = w.bytes();
    args.panel_bytes = panel_bytes_;
    args.num_panels = panels_;
    return args;
  }
  LinearArgs Plain() const { return Args(*x_, *w_); }
  LinearArgs Absolute() const { return Args(*x_abs_, *w_abs_); }

  // y of one kernel; rows `ld` apart, NaN before and canaries after the valid columns.
  std::vector<float> Run(LinearKernel kernel, LinearArgs args, int32_t cols, Accumulate accumulate, InputType out_type = InputType::kF32) {
    const int32_t ld = cols + 5;
    Guarded<std::byte> out(static_cast<size_t>(rows_) * static_cast<size_t>(ld) * InputBytes(out_type));
    const auto row = [&](int32_t r) { return out.bytes() + static_cast<size_t>(r) * static_cast<size_t>(ld) * InputBytes(out_type); };
    for (int32_t r = 0; r < rows_; ++r) {
      for (int32_t c = 0; c < ld; ++c) WriteAs(out_type, row(r), c, Initial(r, c));
    }
    args.out = out.bytes();
    args.out_row_bytes = static_cast<size_t>(ld) * InputBytes(out_type);
    args.out_cols = cols;
    args.accumulate = accumulate;
    args.out_type = out_type;
    kernel(args);
    EXPECT_TRUE(out.PoisonIsIntact()) << Name();
    std::vector<float> values;
    for (int32_t r = 0; r < rows_; ++r) {
      for (int32_t c = 0; c < ld; ++c) {
        const float value = ReadAs(out_type, row(r), c);
        if (c < cols) {
          values.push_back(value);
        } else {
          EXPECT_EQ(value, Initial(r, c)) << Name() << " wrote behind row " << r;
        }
      }
    }
    return values;
  }

  static float Initial(int32_t row, int32_t col) { return static_cast<float>((row * 31 + col * 7) % 64) - 32.0f; }
  int32_t rows() const { return rows_; }
  int32_t panels() const { return panels_; }
  int32_t in() const { return in_; }
  Random& random() { return random_; }
  std::string Name() const {
    return fmt::format("{} rows {} panels {} in {} gathered {} seed {}", types_.name, rows_, panels_, in_, is_gathered_, seed_);
  }
  // The families multiply bf16 pairs with subnormal operands and sums flushed; ref does not.
  double Flushed() const { return types_.input == InputType::kBf16 ? (in_ + 2) * 0x1p-120 : 0; }

 private:
  // The same values for the plain and the absolute copy.
  float Value(Random& values) const {
    const float x = values.Uniform(-2, 2);
    const int32_t kind = values.Below(64);
    return kind == 0 ? x * 0x1p-130f : kind == 1 ? x * 64.0f : x;
  }
  std::unique_ptr<Guarded<std::byte>> Input(bool absolute) const {
    Random values(seed_ * 2 + 1);
    const size_t bytes = InputBytes(types_.input);
    auto x = std::make_unique<Guarded<std::byte>>(static_cast<size_t>(source_rows_) * static_cast<size_t>(x_ld_) * bytes, x_offset_ * 4);
    for (int32_t r = 0; r < source_rows_; ++r) {
      std::byte* row = x->bytes() + static_cast<size_t>(r) * static_cast<size_t>(x_ld_) * bytes;
      for (int32_t k = 0; k < x_ld_; ++k) {
        if (k < in_) {
          const float value = Value(values);
          WriteAs(types_.input, row, k, absolute ? std::abs(value) : value);
        } else {
          WriteAs(types_.input, row, k, k < even_in_ ? 0.0f : std::numeric_limits<float>::quiet_NaN());
        }
      }
    }
    return x;
  }
  std::unique_ptr<Guarded<std::byte>> Weights(bool absolute) const {
    Random values(seed_ * 2 + 2);
    auto w = std::make_unique<Guarded<std::byte>>(static_cast<size_t>(panels_) * panel_bytes_);
    std::vector<float> columns(static_cast<size_t>(kPanelCols) * static_cast<size_t>(in_));
    for (int32_t p = 0; p < panels_; ++p) {
      const std::byte* rows[kPanelCols];
      for (float& value : columns) {
        value = Value(values);
        if (absolute) value = std::abs(value);
      }
      for (size_t c = 0; c < kPanelCols; ++c) rows[c] = reinterpret_cast<const std::byte*>(columns.data() + c * static_cast<size_t>(in_));
      PackPanel(types_.weight, SourceType::kF32, rows, in_, w->bytes() + static_cast<size_t>(p) * panel_bytes_);
    }
    return w;
  }

  Random random_;
  Types types_;
  uint64_t seed_;
  int32_t rows_;
  int32_t source_rows_;
  int32_t panels_;
  int32_t in_;
  int32_t even_in_ = 0;
  int32_t x_ld_ = 0;
  size_t x_offset_ = 0;
  size_t panel_bytes_ = 0;
  bool is_gathered_ = false;
  std::vector<int32_t> row_index_;
  std::unique_ptr<Guarded<std::byte>> x_, x_abs_, w_, w_abs_;
};

// Sum of n products in f32 in any order, then at most one addition to y; ref rounds its sum and that addition too.
double ProductTolerance(const Case& c, float sum_of_absolutes, float result) {
  return (c.in() + 2) * kUnit * static_cast<double>(sum_of_absolutes) + 2 * kUnit * std::abs(static_cast<double>(result)) + c.Flushed() +
         0x1p-126;
}

void CompareLinear(const KernelTable& kernels, const Types& types, Case& c) {
  const LinearKernel kernel = LinearOf(kernels, types);
  const LinearKernel ref = LinearOf(kRefKernels, types);
  const int32_t cols = 16 * c.panels() - c.random().Below(16);
  const std::vector<float> absolute = c.Run(ref, c.Absolute(), cols, Accumulate::kStore);
  for (const Accumulate accumulate : {Accumulate::kStore, Accumulate::kAdd}) {
    const std::vector<float> want = c.Run(ref, c.Plain(), cols, accumulate);
    const std::vector<float> got = c.Run(kernel, c.Plain(), cols, accumulate);
    Worst worst;
    for (size_t i = 0; i < want.size(); ++i) {
      worst.Compare(got[i], want[i], ProductTolerance(c, absolute[i], want[i]), fmt::format("element {}", i));
    }
    ASSERT_LE(worst.ratio(), 1.0) << kernels.name << " " << c.Name() << " " << worst.text();
  }
}

void CompareSwiGlu(const KernelTable& kernels, const Types& types, Case& c) {
  const int32_t panels = c.panels() / 2 * 2;
  if (panels == 0) return;
  const LinearKernel ref = LinearOf(kRefKernels, types);
  LinearArgs plain = c.Plain();
  LinearArgs absolute = c.Absolute();
  plain.num_panels = absolute.num_panels = panels;
  const std::vector<float> sums = c.Run(ref, plain, 16 * panels, Accumulate::kStore);
  const std::vector<float> bounds = c.Run(ref, absolute, 16 * panels, Accumulate::kStore);
  const int32_t cols = 8 * panels - c.random().Below(16);
  for (const InputType out_type : {InputType::kF32, InputType::kBf16}) {
    const std::vector<float> got = c.Run(SwiGluOf(kernels, types), plain, cols, Accumulate::kStore, out_type);
    Worst worst;
    for (int32_t r = 0; r < c.rows(); ++r) {
      for (int32_t n = 0; n < cols; ++n) {
        const auto at = static_cast<size_t>(r * 16 * panels + n / 16 * 32 + n % 16);
        const auto gate = static_cast<double>(sums[at]);
        const auto up = static_cast<double>(sums[at + 16]);
        const double want = gate / (1 + std::exp(-gate)) * up;
        // |silu'| < 1.1; silu errs by 4 ulps of its own, the product by half an ulp.
        const double tolerance = 1.1 * ProductTolerance(c, bounds[at], sums[at]) * std::abs(up) +
                                 std::abs(gate) * ProductTolerance(c, bounds[at + 16], sums[at + 16]) +
                                 (out_type == InputType::kBf16 ? kBf16Step : 10 * kUnit) * std::abs(want) + 0x1p-120;
        worst.Compare(got[static_cast<size_t>(r * cols + n)], want, tolerance, fmt::format("row {} column {}", r, n));
      }
    }
    ASSERT_LE(worst.ratio(), 1.0) << kernels.name << " " << c.Name() << " " << worst.text();
  }
}

using LinearKernelTest = FamilyTest;
AVOCET_ALL_FAMILIES(LinearKernelTest);

TEST_P(LinearKernelTest, Num2_EveryShapeAroundTheBlocks_AgreesWithRef) {
  uint64_t seed = 100;
  for (const Types& types : kTypes) {
    if (LinearOf(kernels(), types) == nullptr) continue;
    for (int32_t rows = 1; rows <= 20; ++rows) {
      for (int32_t panels = 1; panels <= 9; ++panels) {
        ++seed;
        Case c(seed, types, rows, panels, Random(seed).Between(1, 70));
        ASSERT_NO_FATAL_FAILURE(CompareLinear(kernels(), types, c));
        ASSERT_NO_FATAL_FAILURE(CompareSwiGlu(kernels(), types, c));
      }
    }
  }
}

TEST_P(LinearKernelTest, Num2_EveryNumberOfInputs_AgreesWithRef) {
  for (const Types& types : kTypes) {
    if (LinearOf(kernels(), types) == nullptr) continue;
    for (int32_t in : {1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 511, 512, 513, 1023, 1500, 2050, 4100}) {
      for (int32_t rows : {1, 2, 7, 13}) {
        Case c(static_cast<uint64_t>(in * 32 + rows), types, rows, 5, in);
        ASSERT_NO_FATAL_FAILURE(CompareLinear(kernels(), types, c));
        ASSERT_NO_FATAL_FAILURE(CompareSwiGlu(kernels(), types, c));
      }
    }
  }
}

TEST_P(LinearKernelTest, NonFiniteInput_StaysInItsRow) {
  for (const Types& types : kTypes) {
    const LinearKernel kernel = LinearOf(kernels(), types);
    if (kernel == nullptr) continue;
    Random random(7);
    constexpr int32_t kRows = 9;
    constexpr int32_t kIn = 40;
    std::vector<float> x = random.Floats(kRows * kIn);
    x[3 * kIn + 11] = std::numeric_limits<float>::quiet_NaN();
    x[5 * kIn + 2] = std::numeric_limits<float>::infinity();
    const InputMatrix input(types.input, kRows, kIn, x);
    const PackedMatrix weight(types.weight, 64, kIn, random.Floats(64 * kIn, 0.5f, 1.0f));
    std::vector<float> y(kRows * 64);
    LinearArgs args;
    args.x = input.view().data;
    args.x_row_bytes = static_cast<size_t>(input.view().ld) * InputBytes(types.input);
    args.rows = kRows;
    args.in_features = kIn;
    args.panels = weight.weight().data;
    args.panel_bytes = PanelBytes(types.weight, kIn);
    args.num_panels = 4;
    args.out = reinterpret_cast<std::byte*>(y.data());
    args.out_row_bytes = 64 * 4;
    args.out_cols = 64;
    kernel(args);
    for (size_t i = 0; i < y.size(); ++i) {
      const size_t row = i / 64;
      EXPECT_EQ(std::isnan(y[i]), row == 3) << types.name << " row " << row;
      EXPECT_EQ(std::isinf(y[i]), row == 5) << types.name << " row " << row;
    }
  }
}

}  // namespace
}  // namespace avocet::ops
