// y = x W^T over weights that come from memory: a pool much larger than the caches is cycled. The roof of a row count is the larger of
// the time to read the weights and the time to multiply them, both measured in the same repetition.
#include <cstring>

#include "ops/linear.h"
#include "roof.h"

namespace {

using namespace avocet;

constexpr size_t kMaxRows = 1024;
constexpr size_t kPoolBytes = size_t{768} << 20;

struct Shape {
  int32_t out;
  int32_t in;
};

class LinearBench {
 public:
  LinearBench(const bench::Machine& machine, std::span<std::byte> pool, ops::InputType input)
      : machine_(machine),
        pool_(pool),
        input_(input),
        format_(ops::IsInt8(input) ? ops::WeightFormat::kInt8 : ops::WeightFormat::kBf16),
        scales_(kMaxRows, 0.01f) {
    auto arena = device::Arena::Create("bench", size_t{512} << 20);
    CHECK(arena.has_value(), "{}", arena.error().message);
    arena_ = *std::move(arena);
    x_ = arena_.Allocate(size_t{64} << 20);
    y_ = arena_.AllocateSpan<float>(size_t{64} << 20);
    std::memcpy(x_, pool.data(), size_t{64} << 20);
  }

  void Run(const Shape& shape, int32_t rows, double goal) {
    const size_t bytes = ops::PackedBytes(format_, shape.out, shape.in);
    const size_t matrices = pool_.size() / bytes;
    // At least 100 MB of weights or 20 GFLOP per repetition.
    const double flops = 2.0 * rows * shape.out * shape.in;
    const size_t count = std::clamp<size_t>(static_cast<size_t>(std::min(1e8 / static_cast<double>(bytes), 2e10 / flops)), 1, matrices);
    size_t next = 0;
    const auto roof = [&] {
      const size_t read_bytes = std::min(size_t{96} << 20, pool_.size() / 2);
      const size_t from = (next * bytes + pool_.size() / 2) % (pool_.size() - read_bytes) / 64 * 64;
      const double read = bench::ReadRate(*machine_.pool, pool_.subspan(from, read_bytes));
      const double flop_rate = rows >= 4 ? bench::FlopRate(machine_, input_) : 1e30;
      return 1 / std::max(static_cast<double>(bytes) / read, flops / flop_rate);  // matrices per second
    };
    const auto ours = [&] {
      const double seconds = bench::SecondsOf(*machine_.pool, [&] { Multiply(shape, rows, bytes, next, count); });
      next = (next + count) % matrices;
      return static_cast<double>(count) / seconds;
    };
    const std::string type = ops::IsInt8(input_) ? "int8 x int8" : input_ == ops::InputType::kBf16 ? "bf16 x bf16" : "f32 x bf16";
    const bool by_bytes = rows < 16;
    bench::Compare(machine_, {fmt::format("linear {} M={} {}x{}", type, rows, shape.out, shape.in), by_bytes ? "GB/s" : "GFLOPS", goal},
                   roof, ours, (by_bytes ? static_cast<double>(bytes) : flops) / 1e9);
  }

 private:
  void Multiply(const Shape& shape, int32_t rows, size_t bytes, size_t first, size_t count) {
    const size_t matrices = pool_.size() / bytes;
    const ops::InputView x{input_, x_, rows, shape.in, (shape.in + 63) / 64 * 64, scales_.data()};
    const MatView<float> y(y_.data(), rows, shape.out);
    machine_.pool->Run([&](device::Worker& worker) {
      for (size_t i = 0; i < count; ++i) {
        const ops::PackedWeight weight{format_, shape.out, shape.in, pool_.data() + (first + i) % matrices * bytes};
        ops::Linear(worker, *machine_.kernels, x, weight, y);
        worker.Barrier();
      }
    });
  }

  const bench::Machine& machine_;
  std::span<std::byte> pool_;
  ops::InputType input_;
  ops::WeightFormat format_;
  std::vector<float> scales_;  // of int8 rows
  device::Arena arena_;
  std::byte* x_ = nullptr;
  std::span<float> y_;
};

}  // namespace

int main(int argc, char** argv) {
  const bench::Machine machine = bench::MakeMachine(argc, argv);
  if (machine.isa == device::Isa::kRef) return 0;  // the reference kernels are not measured
  const bench::Memory pool(kPoolBytes);
  // The goals of int8 and bf16 (performance notes, 7): of the read roof for few rows, of the larger of both times
  // between, of the peak for many.
  const auto goal_of = [](ops::InputType type, int32_t rows) {
    const bool is_int8 = ops::IsInt8(type);
    switch (rows) {
      case 1: return is_int8 ? 0.90 : 0.92;
      case 2:
      case 4: return 0.80;
      case 8:
      case 16: return 0.65;
      case 32: return 0.80;
      default: return rows >= 256 ? is_int8 ? 0.85 : 0.90 : 0.70;
    }
  };
  for (const ops::InputType type : {machine.kernels->product_input_type, machine.kernels->int8_input_type}) {
    LinearBench own(machine, pool.bytes(), type);
    for (const int32_t rows : {1, 2, 4, 7, 8, 16, 32, 64, 256, 1024}) own.Run({2048, 2048}, rows, goal_of(type, rows));
    for (const Shape& shape : {Shape{1024, 3584}, Shape{7168, 1024}, Shape{4096, 12288}}) {
      for (const int32_t rows : {1, 16, 256}) own.Run(shape, rows, goal_of(type, rows));
    }
    own.Run({248320, 1024}, 1, 0.92);
  }
  if (machine.kernels->product_input_type == ops::InputType::kBf16) {
    LinearBench f32(machine, pool.bytes(), ops::InputType::kF32);
    for (const int32_t rows : {1, 16, 256}) f32.Run({2048, 2048}, rows, goal_of(ops::InputType::kF32, rows));
  }
  return 0;
}
