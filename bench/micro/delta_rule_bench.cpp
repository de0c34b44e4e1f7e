// The delta-net mixer with states that come from memory (one token of many sequences), and with one long chunk. Decode is measured
// against an in-place update of as many bytes; a chunk against the multiply-adds of the recurrence at the same run's FMA peak.
#include "ops/delta_rule.h"

#include <cmath>
#include <cstring>

#include "roof.h"

namespace {

using namespace avocet;

class DeltaBench {
 public:
  DeltaBench(const bench::Machine& machine, const ops::DeltaNetShape& shape, int32_t sequences, int32_t rows_each)
      : machine_(machine),
        shape_(shape),
        sequences_(sequences),
        rows_each_(rows_each),
        state_floats_((ops::RecurrentStateFloats(shape) + 15) / 16 * 16),
        conv_floats_((ops::ConvStateFloats(shape) + 15) / 16 * 16),
        memory_((state_floats_ + conv_floats_) * 4 * static_cast<size_t>(sequences)) {
    const auto rows = static_cast<size_t>(sequences * rows_each);
    const auto fill = [](std::span<float> values, float scale) {
      for (size_t i = 0; i < values.size(); ++i) values[i] = scale * static_cast<float>((i * 2654435761u >> 8) % 2001) / 1000.0f - scale;
    };
    conv_.resize(static_cast<size_t>(shape.conv_dim()) * static_cast<size_t>(shape.conv_kernel));
    a_log_.assign(static_cast<size_t>(shape.num_value_heads), 0.5f);
    dt_bias_.assign(static_cast<size_t>(shape.num_value_heads), 0.1f);
    norm_.assign(static_cast<size_t>(shape.value_dim), 1.0f);
    fill(conv_, 0.5f);
    const size_t scratch_bytes = ops::DeltaNetScratchBytes(shape, sequences * rows_each, machine.pool->num_workers());
    const size_t gates = 2 * static_cast<size_t>(shape.num_value_heads);
    const auto values = static_cast<size_t>(shape.total_value_dim());
    auto arena = device::Arena::Create("bench", scratch_bytes + rows * (static_cast<size_t>(Cols()) + gates + values) * 4 + 4096);
    CHECK(arena.has_value(), "{}", arena.error().message);
    arena_ = *std::move(arena);
    scratch_ = {arena_.Allocate(scratch_bytes), scratch_bytes};
    out_ = arena_.Allocate(rows * values * 4);
    qkvz_ = arena_.AllocateSpan<float>(rows * static_cast<size_t>(Cols()));
    ba_ = arena_.AllocateSpan<float>(rows * gates);
    fill(qkvz_, 1.0f);
    fill(ba_, 2.0f);
    for (int32_t s = 0; s < sequences; ++s) {
      float* state = reinterpret_cast<float*>(memory_.bytes().data()) + static_cast<size_t>(s) * (state_floats_ + conv_floats_);
      spans_.push_back(
          {.row_begin = s * rows_each, .num_rows = rows_each, .first_position = 1000, .recurrent = state, .conv = state + state_floats_});
    }
  }

  double Seconds() {
    const int32_t rows = sequences_ * rows_each_;
    const ops::MutableInputView out{machine_.kernels->product_input_type, out_, rows, shape_.total_value_dim(), shape_.total_value_dim()};
    const ops::DeltaNetParams params{conv_, a_log_, dt_bias_, norm_, 1e-6f};
    return bench::SecondsOf(*machine_.pool, [&] {
      machine_.pool->Run([&](device::Worker& worker) {
        ops::DeltaNet(worker, *machine_.kernels, shape_, params, MatView<const float>(qkvz_.data(), rows, Cols()),
                      MatView<const float>(ba_.data(), rows, 2 * shape_.num_value_heads), spans_, scratch_, out);
      });
    });
  }

  double StateBytes() const {
    return static_cast<double>(ops::RecurrentStateFloats(shape_) + ops::ConvStateFloats(shape_)) * 4 * sequences_;
  }

 private:
  int32_t Cols() const { return shape_.conv_dim() + shape_.total_value_dim(); }

  const bench::Machine& machine_;
  ops::DeltaNetShape shape_;
  int32_t sequences_;
  int32_t rows_each_;
  size_t state_floats_;
  size_t conv_floats_;
  bench::Memory memory_;
  device::Arena arena_;
  std::span<std::byte> scratch_;
  std::byte* out_ = nullptr;
  std::span<float> qkvz_, ba_;
  std::vector<float> conv_, a_log_, dt_bias_, norm_;
  std::vector<ops::DeltaNetSpan> spans_;
};

}  // namespace

int main(int argc, char** argv) {
  const bench::Machine machine = bench::MakeMachine(argc, argv);
  if (machine.isa == device::Isa::kRef) return 0;
  const ops::DeltaNetShape small{16, 16, 128, 128, 4};   // 0.8B and 2B
  const ops::DeltaNetShape medium{16, 32, 128, 128, 4};  // 4B, 9B and 35B
  const bench::Memory other(size_t{256} << 20);
  for (const auto& [shape, name] : {std::pair{small, "16 value heads"}, {medium, "32 value heads"}}) {
    // All states together are far larger than the caches.
    DeltaBench decode(machine, shape, 256, 1);
    bench::Compare(
        machine, {fmt::format("delta rule, 1 token, states from memory, {}", name), "GB/s", 0.75},
        [&] { return bench::UpdateRate(*machine.pool, other.bytes()); }, [&] { return 2 * decode.StateBytes() / decode.Seconds(); }, 1e-9);
  }
  for (const int32_t rows : {4, 64, 512}) {
    DeltaBench chunk(machine, small, 4, rows);
    // Per token and head: S^T k, S^T q, the decay and the update, each a multiply-add per element of the state.
    const double flops = 4.0 * rows * small.num_value_heads * small.key_dim * small.value_dim * 2 * 4;
    const double seconds = chunk.Seconds();
    bench::Compare(
        machine,
        {fmt::format("delta rule, {} tokens, {:.2f} us per token and head", rows, seconds * 1e6 / (4.0 * rows * small.num_value_heads)),
         "GFLOPS", 0},
        [&] { return bench::FlopRate(machine, ops::InputType::kF32); }, [&] { return flops / chunk.Seconds(); }, 1e-9);
  }
  return 0;
}
