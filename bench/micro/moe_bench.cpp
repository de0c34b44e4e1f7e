// A layer of experts: grouped gate/up product, SwiGLU, grouped down product, over experts that come from memory. The roof is the larger of
// reading the chosen experts once and of multiplying them. Routing: uniform, Zipf, and one hot expert that every row chooses.
#include <cmath>
#include <cstring>

#include "ops/linear.h"
#include "ops/rowwise.h"
#include "roof.h"

namespace {

using namespace avocet;

enum class Routing { kUniform, kZipf, kHot };

constexpr const char* NameOf(Routing routing) {
  switch (routing) {
    case Routing::kUniform: return "uniform";
    case Routing::kZipf: return "zipf";
    case Routing::kHot: return "hot";
  }
  return "?";
}

struct MoeShape {
  int32_t num_experts, top_k, hidden, intermediate;
};

class MoeBench {
 public:
  MoeBench(const bench::Machine& machine, const MoeShape& shape)
      : machine_(machine),
        shape_(shape),
        gate_up_bytes_(ops::PackedBytes(ops::WeightFormat::kBf16, 2 * shape.intermediate, shape.hidden)),
        down_bytes_(ops::PackedBytes(ops::WeightFormat::kBf16, shape.hidden, shape.intermediate)),
        memory_((gate_up_bytes_ + down_bytes_) * static_cast<size_t>(shape.num_experts)) {
    const std::byte* at = memory_.bytes().data();
    for (int32_t e = 0; e < shape.num_experts; ++e, at += gate_up_bytes_ + down_bytes_) {
      gate_up_.push_back({ops::WeightFormat::kBf16, 2 * shape.intermediate, shape.hidden, at});
      down_.push_back({ops::WeightFormat::kBf16, shape.hidden, shape.intermediate, at + gate_up_bytes_});
    }
  }

  void Run(int32_t rows, Routing routing, double goal) {
    const auto slots = static_cast<size_t>(rows * shape_.top_k);
    Prepare(rows, routing);
    const double expert_bytes = static_cast<double>(gate_up_bytes_ + down_bytes_);
    const double bytes = expert_bytes * static_cast<double>(groups_.active_experts.size());
    const double flops = 2.0 * static_cast<double>(slots) * expert_bytes / 2;
    const auto roof = [&] {
      const double read = bench::ReadRate(*machine_.pool, memory_.bytes().first(std::min(memory_.bytes().size(), size_t{128} << 20)));
      return 1 / std::max(bytes / read, flops / bench::FlopRate(machine_, machine_.kernels->product_input_type));
    };
    const auto ours = [&] { return 1 / Seconds(static_cast<int32_t>(slots), rows); };
    bench::Compare(machine_,
                   {fmt::format("experts {} of {}, {}x{}, T={} {}", shape_.top_k, shape_.num_experts, shape_.hidden, shape_.intermediate,
                                rows, NameOf(routing)),
                    "GB/s", goal},
                   roof, ours, bytes / 1e9);
  }

 private:
  void Prepare(int32_t rows, Routing routing) {
    const auto slots = static_cast<size_t>(rows * shape_.top_k);
    experts_.resize(slots);
    uint64_t state = 12345;
    const auto next = [&state] {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return static_cast<double>(state >> 11) * 0x1p-53;
    };
    for (int32_t r = 0; r < rows; ++r) {
      int32_t* chosen = experts_.data() + static_cast<size_t>(r * shape_.top_k);
      for (int32_t j = 0; j < shape_.top_k;) {
        const double u = next();
        // Zipf: the density 1/x over [1, num_experts + 1).
        const double x = routing == Routing::kZipf ? std::pow(shape_.num_experts + 1.0, u) - 1.0 : u * shape_.num_experts;
        const int32_t expert = routing == Routing::kHot && j == 0 ? 7 : std::min(static_cast<int32_t>(x), shape_.num_experts - 1);
        if (std::find(chosen, chosen + j, expert) == chosen + j) chosen[j++] = expert;
      }
      std::sort(chosen, chosen + shape_.top_k);
    }
    offsets_.resize(static_cast<size_t>(shape_.num_experts) + 1);
    slot_row_.resize(slots);
    active_.resize(static_cast<size_t>(shape_.num_experts));
    slot_of_.resize(slots);
    groups_ = ops::GroupByExpert(MatView<const int32_t>(experts_.data(), rows, shape_.top_k), shape_.num_experts, offsets_, slot_row_,
                                 active_, MatView<int32_t>(slot_of_.data(), rows, shape_.top_k));
    const ops::InputType type = machine_.kernels->product_input_type;
    const size_t x_bytes = static_cast<size_t>(rows * shape_.hidden) * ops::InputBytes(type);
    const size_t mid_bytes = slots * static_cast<size_t>(shape_.intermediate) * ops::InputBytes(type);
    auto arena = device::Arena::Create("bench", x_bytes + mid_bytes + slots * static_cast<size_t>(shape_.hidden) * 4 + 4096);
    CHECK(arena.has_value(), "{}", arena.error().message);
    arena_ = *std::move(arena);
    x_ = arena_.Allocate(x_bytes);
    mid_ = arena_.Allocate(mid_bytes);
    out_ = arena_.AllocateSpan<float>(slots * static_cast<size_t>(shape_.hidden));
    std::memcpy(x_, memory_.bytes().data(), x_bytes);
  }

  double Seconds(int32_t slots, int32_t rows) {
    const ops::InputType type = machine_.kernels->product_input_type;
    const ops::InputView x{type, x_, rows, shape_.hidden, shape_.hidden};
    const ops::MutableInputView mid{type, mid_, slots, shape_.intermediate, shape_.intermediate};
    const ops::InputView mid_view{type, mid_, slots, shape_.intermediate, shape_.intermediate};
    const MatView<float> out(out_.data(), slots, shape_.hidden);
    return bench::SecondsOf(*machine_.pool, [&] {
      machine_.pool->Run([&](device::Worker& worker) {
        ops::GroupedLinearSwiGlu(worker, *machine_.kernels, x, groups_, gate_up_, mid);
        worker.Barrier();
        ops::GroupedLinear(worker, *machine_.kernels, mid_view, groups_, down_, out);
      });
    });
  }

  const bench::Machine& machine_;
  MoeShape shape_;
  size_t gate_up_bytes_;
  size_t down_bytes_;
  bench::Memory memory_;
  std::vector<ops::PackedWeight> gate_up_, down_;
  std::vector<int32_t> experts_, offsets_, slot_row_, active_, slot_of_;
  ops::ExpertGroups groups_;
  device::Arena arena_;
  std::byte* x_ = nullptr;
  std::byte* mid_ = nullptr;
  std::span<float> out_;
};

}  // namespace

int main(int argc, char** argv) {
  const bench::Machine machine = bench::MakeMachine(argc, argv);
  if (machine.isa == device::Isa::kRef) return 0;
  {
    MoeBench medium(machine, {256, 8, 2048, 512});  // 35B
    for (const int32_t rows : {1, 2, 4, 8, 32, 64, 512}) medium.Run(rows, Routing::kUniform, rows <= 64 ? 0.82 : 0.60);
    for (const Routing routing : {Routing::kZipf, Routing::kHot}) {
      for (const int32_t rows : {8, 64}) medium.Run(rows, routing, 0.70);
    }
  }
  MoeBench large(machine, {128, 10, 4096, 1024});  // 397B, a quarter of its experts
  for (const int32_t rows : {1, 4}) large.Run(rows, Routing::kUniform, 0.82);
  return 0;
}
