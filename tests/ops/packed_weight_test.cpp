#include "ops_test_util.h"

namespace avocet::ops {
namespace {

TEST(PackedWeight_, EveryFormat_HoldsEveryElement) {
  Random random(1);
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kF32}) {
    for (const auto& [out, in] : {std::pair{1, 1}, {15, 7}, {16, 16}, {17, 33}, {40, 64}, {3, 129}}) {
      const std::vector<float> rows = random.Floats(static_cast<size_t>(out) * static_cast<size_t>(in));
      const PackedMatrix matrix(format, out, in, rows);
      for (int32_t o = 0; o < out; ++o) {
        std::vector<float> row(static_cast<size_t>(in));
        UnpackRow(matrix.weight(), o, row.data());
        for (int32_t i = 0; i < in; ++i) {
          const float x = rows[static_cast<size_t>(o) * static_cast<size_t>(in) + static_cast<size_t>(i)];
          const float want = format == WeightFormat::kF32 ? x : RoundToBf16(x);
          ASSERT_EQ(PackedElement(matrix.weight(), o, i), want) << out << "x" << in << " at " << o << "," << i;
          ASSERT_EQ(row[static_cast<size_t>(i)], want) << out << "x" << in << " at " << o << "," << i;
        }
      }
    }
  }
}

// Missing columns, an odd number of k, and sources at odd addresses, in every pair of source and format.
TEST(PackPanel_, EverySourceType_ConvertsAndPads) {
  Random random(2);
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kF32}) {
    for (const SourceType source : {SourceType::kBf16, SourceType::kF16, SourceType::kF32}) {
      for (int32_t in = 1; in <= 70; in += in < 36 ? 1 : 17) {
        for (const int32_t columns : {1, 15, 16}) {
          const size_t row_bytes = static_cast<size_t>(in) * SourceBytes(source);
          std::vector<std::byte> memory(1 + static_cast<size_t>(columns) * row_bytes);
          for (std::byte& b : memory) b = static_cast<std::byte>(random.Below(256));
          const std::byte* rows[kPanelCols] = {};
          for (int32_t c = 0; c < columns; ++c) rows[c] = memory.data() + 1 + static_cast<size_t>(c) * row_bytes;
          Guarded<std::byte> panel(PanelBytes(format, in));
          PackPanel(format, source, rows, in, panel.bytes());
          ASSERT_TRUE(panel.PoisonIsIntact());
          const PackedWeight weight{format, kPanelCols, format == WeightFormat::kBf16 ? (in + 1) / 2 * 2 : in, panel.bytes()};
          for (int32_t c = 0; c < kPanelCols; ++c) {
            for (int32_t k = 0; k < weight.in_features; ++k) {
              float want = 0;
              if (c < columns && k < in) {
                if (source == SourceType::kF32) {
                  std::memcpy(&want, rows[c] + static_cast<size_t>(k) * 4, 4);
                } else {
                  uint16_t bits;
                  std::memcpy(&bits, rows[c] + static_cast<size_t>(k) * 2, 2);
                  want = source == SourceType::kBf16 ? ToF32(Bf16{bits}) : ToF32(F16{bits});
                }
                if (format == WeightFormat::kBf16) want = RoundToBf16(want);
              }
              const float got = PackedElement(weight, c, k);
              ASSERT_TRUE(got == want || (std::isnan(got) && std::isnan(want)))
                  << "source " << static_cast<int>(source) << " in " << in << " column " << c << " k " << k << ": " << got << ", " << want;
            }
          }
        }
      }
    }
  }
}

TEST(ProductInput_, RowsOfWorkers_AreApartAndAligned) {
  auto arena = device::Arena::Create("test", size_t{4} << 20);
  ASSERT_TRUE(arena.has_value());
  const auto pool = MakePool(3);
  const ProductInput input(*arena, InputType::kBf16, 10, 37, 3);
  EXPECT_TRUE(input.IsReplicated(ProductInput::kReplicatedRowsMax));
  EXPECT_FALSE(input.IsReplicated(ProductInput::kReplicatedRowsMax + 1));
  EXPECT_EQ(arena->used_bytes(), ProductInput::BytesNeeded(InputType::kBf16, 10, 37, 3));
  std::array<const std::byte*, 3> own{};
  pool->Run([&](device::Worker& worker) {
    own[static_cast<size_t>(worker.id())] = input.Private(worker, 2).row(1);
    EXPECT_EQ(input.Replicated(worker, 2).data, input.Private(worker, 2).data);
    EXPECT_EQ(input.Replicated(worker, 9).data, input.Shared(9).data);
  });
  for (const std::byte* row : own) EXPECT_EQ(reinterpret_cast<uintptr_t>(row) % 64, 0u);
  EXPECT_NE(own[0], own[1]);
  EXPECT_NE(own[1], own[2]);
}

TEST(KernelChoice_, Explanation_NamesTheChosenAndWhyNotBetter) {
  device::CpuFeatures cpu;
  cpu.avx2_fma = cpu.avx512 = true;
  cpu.amx_bf16 = true;
  const auto lines = ExplainChoice(cpu, device::Isa::kAvx2);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_NE(lines[0].find("amx"), std::string::npos);
  EXPECT_EQ(lines[1], "avx512_bf16: this CPU lacks it");
  EXPECT_EQ(lines[2], "avx512: lowered by AVOCET_ISA");
  EXPECT_EQ(lines[3], "avx2: chosen");
  EXPECT_EQ(AvailableIsas(cpu), (std::vector{device::Isa::kRef, device::Isa::kAvx2, device::Isa::kAvx512}));
}

}  // namespace
}  // namespace avocet::ops
