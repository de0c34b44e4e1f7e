// Paged attention. Decode: one row of many sequences over pages in memory in a shuffled order, against reading as many bytes of K and V.
// A chunk: the multiply-adds of scores and values against the same run's FMA peak.
#include "ops/attention.h"

#include <cstring>
#include <numeric>

#include "roof.h"

namespace {

using namespace avocet;

class AttentionBench {
 public:
  AttentionBench(const bench::Machine& machine, const ops::AttentionShape& shape, int32_t sequences, int32_t context, int32_t rows_each)
      : machine_(machine), shape_(shape), context_(context), rows_(sequences * rows_each) {
    constexpr int32_t kPageTokens = 64;
    const int32_t pages_each = (context + kPageTokens - 1) / kPageTokens;
    kv_ = {.type = ops::KvType::kBf16,
           .data = nullptr,
           .page_bytes = ops::KvPageBytes(ops::KvType::kBf16, kPageTokens, shape.num_kv_heads, shape.head_dim),
           .page_tokens = kPageTokens,
           .num_kv_heads = shape.num_kv_heads,
           .head_dim = shape.head_dim};
    const auto num_pages = static_cast<size_t>(sequences * pages_each);
    memory_ = std::make_unique<bench::Memory>(num_pages * kv_.page_bytes);
    kv_.data = memory_->bytes().data();
    // 7919 is a prime that divides no page count here: a shuffle.
    for (size_t i = 0; i < num_pages; ++i) pages_.push_back(PageId{static_cast<int32_t>(i * 7919 % num_pages)});
    for (int32_t s = 0; s < sequences; ++s) {
      spans_.push_back({s * rows_each, rows_each, context - rows_each,
                        std::span(pages_).subspan(static_cast<size_t>(s * pages_each), static_cast<size_t>(pages_each))});
    }
    const size_t scratch_bytes = ops::AttentionScratchBytes(shape, rows_, context, machine.pool->num_workers());
    const size_t qkv_floats = static_cast<size_t>(rows_) * static_cast<size_t>(Cols());
    auto arena = device::Arena::Create("bench", scratch_bytes + qkv_floats * 8 + 4096);
    CHECK(arena.has_value(), "{}", arena.error().message);
    arena_ = *std::move(arena);
    scratch_ = {arena_.Allocate(scratch_bytes), scratch_bytes};
    qkv_ = arena_.AllocateSpan<float>(qkv_floats);
    out_ = arena_.Allocate(qkv_floats * 4);
    for (size_t i = 0; i < qkv_.size(); ++i) qkv_[i] = static_cast<float>((i * 2654435761u >> 8) % 2001) / 1000.0f - 1.0f;
  }

  double Seconds() {
    const int32_t out_cols = shape_.num_heads * shape_.head_dim;
    const ops::MutableInputView out{machine_.kernels->product_input_type, out_, rows_, out_cols, out_cols};
    return bench::SecondsOf(*machine_.pool, [&] {
      machine_.pool->Run([&](device::Worker& worker) {
        ops::Attention(worker, *machine_.kernels, shape_, MatView<const float>(qkv_.data(), rows_, Cols()), spans_, kv_, scratch_, out);
      });
    });
  }

  double KvBytes() const {
    return static_cast<double>(context_) * static_cast<double>(kv_.page_bytes) / kv_.page_tokens * static_cast<double>(spans_.size());
  }
  // Two multiply-adds per query, position and dimension; row i of a chunk sees `context - rows + i + 1` positions.
  double Flops() const {
    const int32_t rows_each = rows_ / static_cast<int32_t>(spans_.size());
    return 4.0 * shape_.head_dim * shape_.num_heads * rows_ * (context_ - (rows_each - 1) / 2.0);
  }

 private:
  int32_t Cols() const { return 2 * (shape_.num_heads + shape_.num_kv_heads) * shape_.head_dim; }

  const bench::Machine& machine_;
  ops::AttentionShape shape_;
  int32_t context_;
  int32_t rows_;
  ops::KvLayer kv_;
  std::unique_ptr<bench::Memory> memory_;
  std::vector<PageId> pages_;
  std::vector<ops::AttentionSpan> spans_;
  device::Arena arena_;
  std::span<std::byte> scratch_;
  std::span<float> qkv_;
  std::byte* out_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  const bench::Machine machine = bench::MakeMachine(argc, argv);
  if (machine.isa == device::Isa::kRef) return 0;
  const bench::Memory other(size_t{256} << 20);
  struct Decode {
    ops::AttentionShape shape;
    int32_t sequences, context;
    double goal;
  };
  for (const Decode& d : {Decode{{8, 2, 256, 64}, 64, 512, 0}, Decode{{8, 2, 256, 64}, 32, 4096, 0.60},
                          Decode{{16, 2, 256, 64}, 32, 4096, 0}, Decode{{8, 2, 256, 64}, 1, 65536, 0.60}}) {
    AttentionBench bench(machine, d.shape, d.sequences, d.context, 1);
    bench::Compare(
        machine,
        {fmt::format("attention, {} x 1 row, context {}, {} heads per K/V head", d.sequences, d.context,
                     d.shape.num_heads / d.shape.num_kv_heads),
         "GB/s", d.goal},
        [&] { return bench::ReadRate(*machine.pool, other.bytes()); }, [&] { return bench.KvBytes() / bench.Seconds(); }, 1e-9);
  }
  for (const auto& [rows, context] : {std::pair{512, 512}, {512, 4096}, {4, 4096}}) {
    AttentionBench bench(machine, {8, 2, 256, 64}, 1, context, rows);
    bench::Compare(
        machine, {fmt::format("attention, {} rows of context {}", rows, context), "GFLOPS", 0},
        [&] { return bench::FlopRate(machine, ops::InputType::kF32); }, [&] { return bench.Flops() / bench.Seconds(); }, 1e-9);
  }
  return 0;
}
