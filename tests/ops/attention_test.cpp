// Paged attention: the kernel of every family against ref, the operation against the formula in double, and NUM-1: the same bits for
// any chunking, page size, company, order and number of workers, over page memory that is poisoned where nothing was written.
#include "ops/attention.h"

#include <algorithm>
#include <numeric>

#include "ops_test_util.h"

namespace avocet::ops {
namespace {

using AttentionTest = FamilyTest;
AVOCET_ALL_FAMILIES(AttentionTest);

size_t KvElementBytes(KvType type) {
  return type == KvType::kBf16 ? 2 : 4;
}

// One split with random K and V for the tokens that some query sees; every other byte of the pages is 0xff, a NaN.
class SplitCase {
 public:
  SplitCase(uint64_t seed, KvType type, int32_t page_tokens, int32_t head_dim, std::vector<int32_t> limits)
      : random_(seed), type_(type), page_tokens_(page_tokens), head_dim_(head_dim), limits_(std::move(limits)) {
    longest_ = *std::max_element(limits_.begin(), limits_.end());
    const size_t block = static_cast<size_t>(page_tokens) * static_cast<size_t>(head_dim) * KvElementBytes(type);
    const int32_t num_pages = (longest_ + page_tokens - 1) / page_tokens;
    for (int32_t p = 0; p < num_pages; ++p) {
      k_pages_.push_back(std::make_unique<Guarded<std::byte>>(block));
      v_pages_.push_back(std::make_unique<Guarded<std::byte>>(block));
      k_.push_back(k_pages_.back()->bytes());
      v_.push_back(v_pages_.back()->bytes());
    }
    for (int32_t t = 0; t < longest_; ++t) FillToken(t);
    queries_ = random_.Floats(limits_.size() * static_cast<size_t>(head_dim), -2, 2);
    for (size_t q = 0; q < limits_.size(); ++q) query_pointers_.push_back(queries_.data() + q * static_cast<size_t>(head_dim));
  }

  struct Result {
    std::vector<float> out, max, sum;
  };
  Result Run(const KernelTable& kernels) const {
    const size_t n = limits_.size();
    std::vector<float> scores(n * kSplitTokens, std::numeric_limits<float>::quiet_NaN());
    Guarded<float> out(n * static_cast<size_t>(head_dim_)), max(n), sum(n);
    kernels.attention_split({.queries = query_pointers_.data(),
                             .limits = limits_.data(),
                             .num_queries = static_cast<int32_t>(n),
                             .head_dim = head_dim_,
                             .type = type_,
                             .k = k_.data(),
                             .v = v_.data(),
                             .page_tokens = page_tokens_,
                             .scores = scores.data(),
                             .out = out.data(),
                             .max = max.data(),
                             .sum = sum.data()});
    EXPECT_TRUE(out.PoisonIsIntact() && max.PoisonIsIntact() && sum.PoisonIsIntact());
    return {{out.data(), out.data() + out.count()}, {max.data(), max.data() + n}, {sum.data(), sum.data() + n}};
  }

  void Compare(const KernelTable& kernels) const {
    const Result want = Run(kRefKernels);
    const Result got = Run(kernels);
    Worst worst;
    for (size_t q = 0; q < limits_.size(); ++q) {
      // A score of head_dim products of at most 2 * 1; then exp (4 units and its argument's), sums of `limit` terms, values up to 1.
      const double score = (head_dim_ + 2) * kUnit * 2 * head_dim_ + kUnit * 40;
      const double relative = 2 * score + (limits_[q] + 12) * kUnit;
      const std::string where = fmt::format("query {} of {} (limit {})", q, limits_.size(), limits_[q]);
      worst.Compare(got.max[q], want.max[q], score, where + " max");
      worst.Compare(got.sum[q], want.sum[q], 2 * relative * static_cast<double>(want.sum[q]), where + " sum");
      for (size_t i = 0; i < static_cast<size_t>(head_dim_); ++i) {
        const size_t at = q * static_cast<size_t>(head_dim_) + i;
        worst.Compare(got.out[at] / got.sum[q], want.out[at] / want.sum[q], 2 * relative, fmt::format("{} dim {}", where, i));
      }
    }
    ASSERT_LE(worst.ratio(), 1.0) << kernels.name << " page " << page_tokens_ << " head_dim " << head_dim_ << " " << worst.text();
  }

 private:
  void FillToken(int32_t t) {
    std::byte* k = const_cast<std::byte*>(k_[static_cast<size_t>(t / page_tokens_)]);
    std::byte* v = const_cast<std::byte*>(v_[static_cast<size_t>(t / page_tokens_)]);
    const int32_t token = t % page_tokens_;
    const InputType as = type_ == KvType::kBf16 ? InputType::kBf16 : InputType::kF32;
    for (int32_t i = 0; i < head_dim_; ++i) {
      const int32_t in_group = type_ == KvType::kBf16 ? (i / 2 * 16 + token % 16) * 2 + i % 2 : i * 16 + token % 16;
      WriteAs(as, k, token / 16 * 16 * head_dim_ + in_group, random_.Uniform(-1, 1));
      WriteAs(as, v, token * head_dim_ + i, random_.Uniform(-1, 1));
    }
  }

  Random random_;
  KvType type_;
  int32_t page_tokens_;
  int32_t head_dim_;
  std::vector<int32_t> limits_;
  int32_t longest_ = 0;
  std::vector<std::unique_ptr<Guarded<std::byte>>> k_pages_, v_pages_;
  std::vector<const std::byte*> k_, v_;
  std::vector<float> queries_;
  std::vector<const float*> query_pointers_;
};

TEST_P(AttentionTest, Num2_SplitOfEveryLength_AgreesWithRef) {
  uint64_t seed = 300;
  for (const KvType type : {KvType::kBf16, KvType::kF32}) {
    for (const int32_t page_tokens : {16, 64, 512}) {
      for (const int32_t limit : {1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 100, 129, 511, 512}) {
        const std::vector<int32_t> limits(static_cast<size_t>(1 + limit % 7), limit);
        ASSERT_NO_FATAL_FAILURE(SplitCase(++seed, type, page_tokens, 32, limits).Compare(kernels())) << "seed " << seed;
      }
    }
  }
}

TEST_P(AttentionTest, Num2_HeadDimsAndGroups_AgreeWithRef) {
  uint64_t seed = 500;
  for (const KvType type : {KvType::kBf16, KvType::kF32}) {
    for (const int32_t head_dim : {2, 6, 16, 18, 32, 48, 62, 64, 96, 128, 256, 512}) {
      for (const int32_t queries : {1, 2, 3, 4, 5, 6, 7, 8, 13, 32}) {
        Random random(++seed);
        std::vector<int32_t> limits;
        for (int32_t q = 0; q < queries; ++q) limits.push_back(std::min(512, 100 + q / 2));  // as rows of a chunk see one more each
        if (queries == 13) limits = {1, 2, 2, 3, 17, 64, 65, 66, 200, 201, 201, 300, 512};
        ASSERT_NO_FATAL_FAILURE(SplitCase(seed, type, 64, head_dim, limits).Compare(kernels())) << "seed " << seed;
      }
    }
  }
}

TEST_P(AttentionTest, MergeAndGate_AgreeWithDouble) {
  Random random(31);
  for (int32_t size : {1, 8, 15, 16, 17, 33, 64, 256}) {
    const auto n = static_cast<size_t>(size);
    const std::vector<float> acc = random.Floats(n), split = random.Floats(n), gate = random.Floats(n, -9, 9);
    for (const auto& [max, split_max] : {std::pair{0.5f, 3.0f}, {3.0f, 0.5f}, {-200.0f, 10.0f}, {10.0f, -200.0f}}) {
      Guarded<float> merged(n, 1);
      std::copy(acc.begin(), acc.end(), merged.data());
      float top = max, sum = 2.0f;
      kernels().attention_merge({.acc = merged.data(),
                                 .max = &top,
                                 .sum = &sum,
                                 .split_acc = split.data(),
                                 .split_max = split_max,
                                 .split_sum = 5.0f,
                                 .size = size});
      ASSERT_TRUE(merged.PoisonIsIntact());
      const double high = std::max(static_cast<double>(max), static_cast<double>(split_max));
      const double before = std::exp(static_cast<double>(max) - high), now = std::exp(static_cast<double>(split_max) - high);
      EXPECT_EQ(top, static_cast<float>(high));
      EXPECT_NEAR(sum, 2 * before + 5 * now, 8 * kUnit * 7);
      for (size_t i = 0; i < n; ++i)
        EXPECT_NEAR(merged[i], static_cast<double>(acc[i]) * before + static_cast<double>(split[i]) * now, 8 * kUnit * 2);
    }
    for (const InputType type : {InputType::kF32, InputType::kBf16}) {
      Guarded<std::byte> out(n * InputBytes(type));
      kernels().attention_gate({.acc = acc.data(), .sum = 3.0f, .gate = gate.data(), .size = size, .out_type = type, .out = out.bytes()});
      ASSERT_TRUE(out.PoisonIsIntact());
      for (size_t i = 0; i < n; ++i) {
        const double want = static_cast<double>(acc[i]) / 3 / (1 + std::exp(-static_cast<double>(gate[i])));
        EXPECT_NEAR(ReadAs(type, out.bytes(), static_cast<int32_t>(i)), want,
                    (type == InputType::kBf16 ? kBf16Step : 8 * kUnit) * std::abs(want) + 0x1p-120);
      }
    }
  }
}

struct Conditions {
  int32_t page_tokens = 16;
  int32_t workers = 1;
  InputType out_type = InputType::kF32;
};

// Sequences of one layer with all their projected rows. Advance() runs some of the rows of some sequences in one step.
class Layer {
 public:
  Layer(const KernelTable& kernels, const AttentionShape& shape, KvType type, const Conditions& conditions, std::vector<int32_t> lengths)
      : kernels_(kernels), shape_(shape), conditions_(conditions), lengths_(std::move(lengths)) {
    Random random(77);
    cols_ = 2 * (shape.num_heads + shape.num_kv_heads) * shape.head_dim;
    q_norm_ = random.Floats(static_cast<size_t>(shape.head_dim), 0.5f, 1.5f);
    k_norm_ = random.Floats(static_cast<size_t>(shape.head_dim), 0.5f, 1.5f);
    int32_t num_pages = 0;
    for (const int32_t length : lengths_) {
      rows_.push_back(random.Floats(static_cast<size_t>(length) * static_cast<size_t>(cols_), -2, 2));
      out_.emplace_back(static_cast<size_t>(length));
      pages_.emplace_back(static_cast<size_t>((length + conditions.page_tokens - 1) / conditions.page_tokens));
      num_pages += static_cast<int32_t>(pages_.back().size());
    }
    // Pages of the sequences are interleaved and in descending order.
    int32_t next = num_pages;
    for (size_t i = 0; next > 0; ++i) {
      for (auto& pages : pages_) {
        if (i < pages.size()) pages[i] = PageId{--next};
      }
    }
    kv_.type = type;
    kv_.page_tokens = conditions.page_tokens;
    kv_.num_kv_heads = shape.num_kv_heads;
    kv_.head_dim = shape.head_dim;
    kv_.page_bytes = KvPageBytes(type, conditions.page_tokens, shape.num_kv_heads, shape.head_dim);
    memory_ = std::make_unique<Guarded<std::byte>>(static_cast<size_t>(num_pages) * kv_.page_bytes);
    kv_.data = memory_->bytes();
    pool_ = MakePool(conditions.workers);
  }

  struct Part {
    size_t sequence;
    int32_t first;
    int32_t count;
  };

  void Advance(const std::vector<Part>& parts) {
    int32_t rows = 0;
    std::vector<float> qkv;
    std::vector<int32_t> positions;
    std::vector<AttentionSpan> spans;
    for (const Part& part : parts) {
      const float* from = rows_[part.sequence].data() + static_cast<size_t>(part.first) * static_cast<size_t>(cols_);
      qkv.insert(qkv.end(), from, from + static_cast<size_t>(part.count) * static_cast<size_t>(cols_));
      for (int32_t i = 0; i < part.count; ++i) positions.push_back(part.first + i);
      spans.push_back({rows, part.count, part.first, pages_[part.sequence]});
      rows += part.count;
    }
    const std::vector<int32_t> one_axis = positions;
    positions.insert(positions.end(), one_axis.begin(), one_axis.end());
    positions.insert(positions.end(), one_axis.begin(), one_axis.end());
    Step(qkv, positions, spans, rows);
    int32_t row = 0;
    for (const Part& part : parts) {
      for (int32_t i = 0; i < part.count; ++i, ++row)
        out_[part.sequence][static_cast<size_t>(part.first + i)] = step_out_[static_cast<size_t>(row)];
    }
  }

  const std::vector<std::vector<std::vector<std::byte>>>& out() const { return out_; }
  bool PoisonIsIntact() const { return memory_->PoisonIsIntact(); }

  // Row `position` of a sequence by the formula, in double.
  std::vector<double> Formula(size_t sequence, int32_t position) const {
    const int32_t dim = shape_.head_dim;
    std::vector<double> result;
    for (int32_t head = 0; head < shape_.num_heads; ++head) {
      const int32_t kv_head = head / (shape_.num_heads / shape_.num_kv_heads);
      const std::vector<double> q = Prepared(sequence, position, head * 2 * dim, q_norm_);
      std::vector<double> scores, out(static_cast<size_t>(dim));
      for (int32_t t = 0; t <= position; ++t) {
        const std::vector<double> k = Prepared(sequence, t, (2 * shape_.num_heads + kv_head) * dim, k_norm_);
        scores.push_back(std::inner_product(q.begin(), q.end(), k.begin(), 0.0) / std::sqrt(dim));
      }
      const double max = *std::max_element(scores.begin(), scores.end());
      double sum = 0;
      for (double& score : scores) sum += score = std::exp(score - max);
      for (int32_t t = 0; t <= position; ++t) {
        const float* v = Row(sequence, t) + (2 * shape_.num_heads + shape_.num_kv_heads + kv_head) * dim;
        for (int32_t i = 0; i < dim; ++i) out[static_cast<size_t>(i)] += scores[static_cast<size_t>(t)] / sum * static_cast<double>(v[i]);
      }
      for (int32_t i = 0; i < dim; ++i) {
        const auto gate = static_cast<double>(Row(sequence, position)[(2 * head + 1) * dim + i]);
        result.push_back(out[static_cast<size_t>(i)] / (1 + std::exp(-gate)));
      }
    }
    return result;
  }

 private:
  const float* Row(size_t sequence, int32_t position) const {
    return rows_[sequence].data() + static_cast<size_t>(position) * static_cast<size_t>(cols_);
  }

  std::vector<double> Prepared(size_t sequence, int32_t position, int32_t col, const std::vector<float>& weight) const {
    const float* x = Row(sequence, position) + col;
    const auto dim = static_cast<size_t>(shape_.head_dim);
    double squares = 0;
    for (size_t i = 0; i < dim; ++i) squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    std::vector<double> y(dim);
    for (size_t i = 0; i < dim; ++i)
      y[i] = static_cast<double>(x[i]) / std::sqrt(squares / static_cast<double>(dim) + 1e-6) * static_cast<double>(weight[i]);
    const auto half = static_cast<size_t>(shape_.rotary_dim / 2);
    for (size_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(static_cast<float>(position) * Frequency(i));
      const double a = y[i], b = y[i + half];
      y[i] = a * std::cos(angle) - b * std::sin(angle);
      y[i + half] = b * std::cos(angle) + a * std::sin(angle);
    }
    return y;
  }

  static float Frequency(size_t i) { return 1.0f / static_cast<float>(1 + i * i); }

  void Step(std::vector<float>& qkv, const std::vector<int32_t>& positions, const std::vector<AttentionSpan>& spans, int32_t rows) {
    const int32_t half = shape_.rotary_dim / 2;
    std::vector<float> frequencies, cos(static_cast<size_t>(rows * half)), sin(static_cast<size_t>(rows * half));
    for (size_t i = 0; i < static_cast<size_t>(half); ++i) frequencies.push_back(Frequency(i));
    const std::vector<uint8_t> axis(frequencies.size());
    const int32_t context = *std::max_element(lengths_.begin(), lengths_.end());
    Guarded<std::byte> scratch(AttentionScratchBytes(shape_, rows, context, conditions_.workers));
    const int32_t cols = shape_.num_heads * shape_.head_dim;
    const InputMatrix out(conditions_.out_type, rows, cols, std::vector<float>(static_cast<size_t>(rows) * static_cast<size_t>(cols)));
    const MatView<float> view(qkv.data(), rows, cols_);
    const MatView<float> cos_view(cos.data(), rows, half), sin_view(sin.data(), rows, half);
    pool_->Run([&](device::Worker& worker) {
      ComputeRopeAngles(worker, MatView<const int32_t>(positions.data(), 3, rows), frequencies, axis, 1.0f, cos_view, sin_view);
      worker.Barrier();
      PrepareQkvAndStore(worker, kernels_, shape_, view, q_norm_, k_norm_, 1e-6f, {cos_view, sin_view}, spans, kv_);
      worker.Barrier();
      Attention(worker, kernels_, shape_, view, spans, kv_, {scratch.data(), scratch.count()}, out.writable());
    });
    EXPECT_TRUE(scratch.PoisonIsIntact());
    step_out_.clear();
    for (int32_t r = 0; r < rows; ++r) step_out_.push_back(out.Row(r));
  }

  const KernelTable& kernels_;
  AttentionShape shape_;
  Conditions conditions_;
  std::vector<int32_t> lengths_;
  int32_t cols_ = 0;
  std::vector<float> q_norm_, k_norm_;
  std::vector<std::vector<float>> rows_;
  std::vector<std::vector<PageId>> pages_;
  std::vector<std::vector<std::vector<std::byte>>> out_;  // [sequence][position]
  std::vector<std::vector<std::byte>> step_out_;
  KvLayer kv_;
  std::unique_ptr<Guarded<std::byte>> memory_;
  std::unique_ptr<device::WorkerPool> pool_;
};

// Prompt chunks of `chunk` rows of all sequences side by side, the order of the sequences turned around in every other step.
void RunInChunks(Layer& layer, const std::vector<int32_t>& lengths, int32_t chunk) {
  const int32_t longest = *std::max_element(lengths.begin(), lengths.end());
  for (int32_t first = 0; first < longest; first += chunk) {
    std::vector<Layer::Part> parts;
    for (size_t s = 0; s < lengths.size(); ++s) {
      if (first < lengths[s]) parts.push_back({s, first, std::min(chunk, lengths[s] - first)});
    }
    if (first / chunk % 2 == 1) std::reverse(parts.begin(), parts.end());
    layer.Advance(parts);
  }
}

TEST_P(AttentionTest, WholeOperation_AgreesWithTheFormula) {
  for (const AttentionShape& shape : {AttentionShape{4, 2, 32, 8}, {6, 1, 16, 16}, {3, 3, 6, 2}, {16, 2, 64, 64}}) {
    const std::vector<int32_t> lengths = {70, 1, 33};
    Layer layer(kernels(), shape, KvType::kF32, {.page_tokens = 16, .workers = 2}, lengths);
    RunInChunks(layer, lengths, 17);
    EXPECT_TRUE(layer.PoisonIsIntact());
    for (size_t s = 0; s < lengths.size(); ++s) {
      for (int32_t position = 0; position < lengths[s]; position += 3) {
        const std::vector<double> want = layer.Formula(s, position);
        const std::byte* got = layer.out()[s][static_cast<size_t>(position)].data();
        // q and k have elements up to 6, scores errors of 2 dim units times dim * 36 / sqrt(dim); values are up to 2.
        const double score = (2 * shape.head_dim + 20) * kUnit * 36 * std::sqrt(shape.head_dim);
        for (size_t i = 0; i < want.size(); ++i)
          ASSERT_NEAR(ReadAs(InputType::kF32, got, static_cast<int32_t>(i)), want[i], 2 * 2 * score)
              << "sequence " << s << " at " << position;
      }
    }
  }
}

TEST_P(AttentionTest, Num1_AnyChunkPageSizeCompanyAndWorkers_SameBits) {
  const AttentionShape shape{4, 2, 16, 8};
  for (const KvType type : {KvType::kBf16, KvType::kF32}) {
    const InputType out_type = type == KvType::kBf16 ? InputType::kBf16 : InputType::kF32;
    const std::vector<int32_t> lengths = {1100, 37, 530};  // three splits, one, two
    Layer alone(kernels(), shape, type, {.page_tokens = 16, .workers = 1, .out_type = out_type}, lengths);
    // Long prompts alone in one chunk; the short one token by token.
    alone.Advance({{0, 0, lengths[0]}});
    for (int32_t t = 0; t < lengths[1]; ++t) alone.Advance({{1, t, 1}});
    alone.Advance({{2, 0, lengths[2]}});
    for (const auto& [page_tokens, workers, chunk] :
         {std::tuple{64, 1, 97}, {16, 2, 1}, {64, 3, 8}, {512, 5, 700}, {128, 2, 2000}, {64, 2, 7}}) {
      Layer layer(kernels(), shape, type, {.page_tokens = page_tokens, .workers = workers, .out_type = out_type}, lengths);
      RunInChunks(layer, lengths, chunk);
      EXPECT_TRUE(layer.out() == alone.out()) << page_tokens << " tokens per page, " << workers << " workers, chunks of " << chunk;
      EXPECT_TRUE(layer.PoisonIsIntact());
    }
  }
}

// NUM-1 where the work is shared out by splits of the context: one row of a long sequence on many workers, beside short ones.
TEST_P(AttentionTest, Num1_LongContextSharedByWorkers_SameBits) {
  const AttentionShape shape{8, 1, 16, 16};
  const std::vector<int32_t> lengths = {2600, 700, 5};
  std::vector<std::vector<std::byte>> want;
  for (int32_t workers : {1, 2, 3, 5, 16}) {
    Layer layer(kernels(), shape, KvType::kBf16, {.page_tokens = 64, .workers = workers}, lengths);
    layer.Advance({{0, 0, 2590}, {1, 0, 690}, {2, 0, 1}});
    layer.Advance({{0, 2590, 1}});
    layer.Advance({{2, 1, 1}, {0, 2591, 1}, {1, 690, 1}});
    layer.Advance({{0, 2592, 6}, {1, 691, 2}});
    std::vector<std::vector<std::byte>> got(layer.out()[0].begin() + 2580, layer.out()[0].begin() + 2598);
    got.insert(got.end(), layer.out()[1].begin() + 680, layer.out()[1].begin() + 693);
    got.push_back(layer.out()[2][1]);
    if (want.empty()) want = got;
    EXPECT_TRUE(got == want) << workers << " workers";
  }
}

TEST(ComputeRopeAngles_, AxesAndScale_FollowTheirRows) {
  const std::vector<int32_t> positions = {1, 5, 2, 6, 3, 7};  // T, H, W of two rows
  const std::vector<float> frequencies = {1.0f, 0.5f, 0.25f};
  const std::vector<uint8_t> axis = {0, 2, 1};
  std::vector<float> cos(6), sin(6);
  MakePool(2)->Run([&](device::Worker& worker) {
    ComputeRopeAngles(worker, MatView<const int32_t>(positions.data(), 3, 2), frequencies, axis, 2.0f, MatView<float>(cos.data(), 2, 3),
                      MatView<float>(sin.data(), 2, 3));
  });
  const std::array<double, 6> angles = {1, 1.5, 0.5, 5, 3.5, 1.5};
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_FLOAT_EQ(cos[i], static_cast<float>(2 * std::cos(angles[i])));
    EXPECT_FLOAT_EQ(sin[i], static_cast<float>(2 * std::sin(angles[i])));
  }
}

}  // namespace
}  // namespace avocet::ops
