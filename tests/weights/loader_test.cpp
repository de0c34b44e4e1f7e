#include "weights/loader.h"

#include <filesystem>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/safetensors_writer.h"

namespace avocet::weights {
namespace {

using test::Bf16Bytes;
using test::F16Bytes;
using test::F32Bytes;
using test::SafetensorsFile;
using test::TempDir;
using testing::HasSubstr;

std::unique_ptr<device::WorkerPool> Pool(int32_t num_workers) {
  device::WorkerPoolOptions options;
  options.cpus.assign(static_cast<size_t>(num_workers), -1);
  return device::WorkerPool::Create(options).value();
}

// Multiples of 1/64 in [-4, 4): exact in bf16 (8 significant bits would need 1/32 above 2, so rounded to bf16 first) and in f16.
std::vector<float> Values(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = ToF32(ToBf16((static_cast<float>(random() % 512) - 256.0f) / 64.0f));
  return values;
}

std::string Bytes(const std::string& dtype, const std::vector<float>& values) {
  return dtype == "BF16" ? Bf16Bytes(values) : dtype == "F16" ? F16Bytes(values) : F32Bytes(values);
}

// A folder with one file, and a loader over it.
class LoaderTest : public testing::Test {
 protected:
  void Add(const std::string& name, const std::string& dtype, std::vector<int64_t> shape, const std::vector<float>& values) {
    tensors_.push_back({name, dtype, std::move(shape), Bytes(dtype, values)});
  }
  Loader& Open(WeightPolicy policy = WeightPolicy::kExact) {
    dir_.Write("model.safetensors", SafetensorsFile(tensors_));
    auto checkpoint = Checkpoint::Open(dir_.path());
    EXPECT_TRUE(checkpoint) << checkpoint.error().message;
    checkpoint_ = std::make_unique<Checkpoint>(std::move(*checkpoint));
    loader_ = std::make_unique<Loader>(*checkpoint_, policy);
    return *loader_;
  }
  device::Arena Load(int32_t num_workers = 2) {
    auto arena = loader_->Load(*Pool(num_workers), {});
    EXPECT_TRUE(arena) << arena.error().message;
    return arena ? std::move(*arena) : device::Arena();
  }
  std::string RefusalOfLoad() {
    const auto arena = loader_->Load(*Pool(1), {});
    return arena ? "accepted" : arena.error().message;
  }

  TempDir dir_;
  std::vector<test::TensorData> tensors_;
  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<Loader> loader_;
};

TEST_F(LoaderTest, EveryTypeAndPolicy_PacksTheSameValues) {
  for (const std::string dtype : {"BF16", "F16", "F32"}) {
    for (const WeightPolicy policy : {WeightPolicy::kExact, WeightPolicy::kBf16, WeightPolicy::kF32}) {
      SCOPED_TRACE(dtype + " policy " + std::to_string(static_cast<int>(policy)));
      tensors_.clear();
      const std::vector<float> values = Values(37 * 23, 1);
      Add("w", dtype, {37, 23}, values);
      ops::PackedWeight weight;
      ASSERT_TRUE(Open(policy).AddMatrix({23, RowOrder::kConcat, {{"w", 0, 37}}}, &weight));
      const device::Arena arena = Load();
      EXPECT_EQ(weight.out_features, 37);
      EXPECT_EQ(weight.in_features, 23);
      const bool is_bf16 = policy == WeightPolicy::kBf16 || (policy == WeightPolicy::kExact && dtype == "BF16");
      EXPECT_EQ(weight.format, is_bf16 ? ops::WeightFormat::kBf16 : ops::WeightFormat::kF32);
      for (int32_t out = 0; out < 37; ++out) {
        for (int32_t in = 0; in < 23; ++in) ASSERT_EQ(ops::PackedElement(weight, out, in), values[static_cast<size_t>(out * 23 + in)]);
      }
      EXPECT_EQ(loader_->packed_bytes(), arena.used_bytes());
      EXPECT_EQ(loader_->ConversionReport().size(), (is_bf16 ? dtype == "BF16" : dtype == "F32") ? 0u : 1u);
    }
  }
}

TEST_F(LoaderTest, ConcatenatedTensorsOfSeveralTypes_MeetInOnePanel) {
  const std::vector<float> a = Values(5 * 9, 2);
  const std::vector<float> b = Values(7 * 9, 3);
  const std::vector<float> c = Values(20 * 9, 4);
  Add("a", "BF16", {5, 9}, a);
  Add("b", "F32", {7, 9}, b);
  Add("c", "F16", {20, 9}, c);
  for (const WeightPolicy policy : {WeightPolicy::kExact, WeightPolicy::kBf16}) {
    ops::PackedWeight weight;
    ASSERT_TRUE(Open(policy).AddMatrix({9, RowOrder::kConcat, {{"a", 0, 5}, {"b", 0, 7}, {"c", 0, 20}}}, &weight));
    const device::Arena arena = Load();
    ASSERT_EQ(weight.out_features, 32);
    for (int32_t out = 0; out < 32; ++out) {
      const std::vector<float>& from = out < 5 ? a : out < 12 ? b : c;
      const int32_t row = out < 5 ? out : out < 12 ? out - 5 : out - 12;
      for (int32_t in = 0; in < 9; ++in) ASSERT_EQ(ops::PackedElement(weight, out, in), from[static_cast<size_t>(row * 9 + in)]);
    }
  }
}

TEST_F(LoaderTest, GateAndUp_AlternateInPanelsWithZeroPadding) {
  constexpr int32_t kRows = 21;  // one whole panel and five columns of the next
  const std::vector<float> gate = Values(kRows * 6, 5);
  const std::vector<float> up = Values(kRows * 6, 6);
  Add("gate", "BF16", {kRows, 6}, gate);
  Add("up", "BF16", {kRows, 6}, up);
  ops::PackedWeight weight;
  ASSERT_TRUE(Open().AddMatrix({6, RowOrder::kGateUp, {{"gate", 0, kRows}, {"up", 0, kRows}}}, &weight));
  const device::Arena arena = Load();
  ASSERT_EQ(weight.out_features, 64);
  for (int32_t out = 0; out < 64; ++out) {
    const int32_t row = out / 32 * 16 + out % 16;
    const std::vector<float>& from = out / 16 % 2 == 0 ? gate : up;
    for (int32_t in = 0; in < 6; ++in) {
      ASSERT_EQ(ops::PackedElement(weight, out, in), row < kRows ? from[static_cast<size_t>(row * 6 + in)] : 0.0f) << out << " " << in;
    }
  }
}

TEST_F(LoaderTest, StackedTensor_SplitIntoItsMatrices) {
  const std::vector<float> values = Values(3 * 4 * 5, 7);
  Add("experts", "BF16", {3, 4, 5}, values);
  std::array<ops::PackedWeight, 3> weights;
  Loader& loader = Open();
  for (int64_t e = 0; e < 3; ++e) {
    ASSERT_TRUE(loader.AddMatrix({5, RowOrder::kConcat, {{"experts", e * 4, 4, {3, 4, 5}}}}, &weights[static_cast<size_t>(e)]));
  }
  const device::Arena arena = Load();
  for (size_t e = 0; e < 3; ++e) {
    for (int32_t out = 0; out < 4; ++out) {
      for (int32_t in = 0; in < 5; ++in) {
        ASSERT_EQ(ops::PackedElement(weights[e], out, in), values[e * 20 + static_cast<size_t>(out * 5 + in)]);
      }
    }
  }
}

// Many tasks: 24 MB in tasks of 4. The bytes must not depend on who packed them.
TEST_F(LoaderTest, AnyNumberOfWorkers_WritesTheSameArena) {
  Add("w", "BF16", {6000, 2048}, Values(6000 * 2048, 8));
  Add("v", "F32", {100, 64}, Values(6400, 9));
  std::string first;
  for (const int32_t num_workers : {1, 2, 3}) {
    ops::PackedWeight w;
    ops::PackedWeight v;
    ASSERT_TRUE(Open().AddMatrix({2048, RowOrder::kConcat, {{"w", 0, 6000}}}, &w));
    ASSERT_TRUE(loader_->AddMatrix({64, RowOrder::kConcat, {{"v", 0, 100}}}, &v));
    std::vector<size_t> progress;
    auto arena = loader_->Load(*Pool(num_workers), [&](size_t done, size_t total) {
      progress.push_back(done);
      EXPECT_LE(done, total);
    });
    ASSERT_TRUE(arena) << arena.error().message;
    const std::string bytes(reinterpret_cast<const char*>(arena->data()), arena->used_bytes());
    if (first.empty()) first = bytes;
    EXPECT_TRUE(bytes == first);
    ASSERT_FALSE(progress.empty());
    EXPECT_TRUE(std::ranges::is_sorted(progress));
    EXPECT_EQ(progress.back(), size_t{6000} * 2048 * 2 + 6400 * 4);
    EXPECT_EQ(loader_->stats().read_bytes, progress.back());
  }
}

TEST_F(LoaderTest, Vectors_WidenedAndShifted) {
  const std::vector<float> values = Values(70, 10);
  Add("norm", "BF16", {70}, values);
  Add("a_log", "F32", {70}, values);
  Add("dt", "F16", {70}, values);
  std::span<const float> norm;
  std::span<const float> a_log;
  std::span<const float> dt;
  const std::array<int64_t, 1> shape = {70};
  ASSERT_TRUE(Open().AddVector("norm", shape, VectorTransform::kPlusOne, &norm));
  ASSERT_TRUE(loader_->AddVector("a_log", shape, VectorTransform::kNone, &a_log));
  ASSERT_TRUE(loader_->AddVector("dt", shape, VectorTransform::kNone, &dt));
  const device::Arena arena = Load();
  EXPECT_EQ(arena.used_bytes(), 3 * VectorBytes(70));
  EXPECT_EQ(loader_->packed_bytes(), arena.used_bytes());
  for (size_t i = 0; i < 70; ++i) {
    EXPECT_EQ(norm[i], 1.0f + values[i]);
    EXPECT_EQ(a_log[i], values[i]);
    EXPECT_EQ(dt[i], values[i]);
  }
}

TEST_F(LoaderTest, MissingTensor_NamedWithItsShape) {
  Add("w", "BF16", {2, 2}, Values(4, 1));
  ops::PackedWeight weight;
  const auto added = Open().AddMatrix({4, RowOrder::kConcat, {{"layers.0.x", 0, 8}}}, &weight);
  ASSERT_FALSE(added);
  EXPECT_THAT(added.error().message, testing::AllOf(HasSubstr(dir_.path()), HasSubstr("no tensor layers.0.x"), HasSubstr("[8, 4]")));
}

TEST_F(LoaderTest, WrongShape_NamesFileTensorFoundAndWanted) {
  Add("w", "BF16", {4, 2}, Values(8, 1));
  Add("v", "BF16", {3}, Values(3, 1));
  ops::PackedWeight weight;
  std::span<const float> vector;
  const auto matrix = Open().AddMatrix({4, RowOrder::kConcat, {{"w", 0, 2}}}, &weight);
  EXPECT_THAT(matrix.error().message, HasSubstr("model.safetensors: tensor w is BF16 [4, 2], config.json asks for shape [2, 4]"));
  const std::array<int64_t, 2> shape = {3, 1};
  EXPECT_THAT(loader_->AddVector("v", shape, VectorTransform::kNone, &vector).error().message, HasSubstr("asks for shape [3, 1]"));
}

TEST_F(LoaderTest, QuantizedOrWideType_RefusedByName) {
  for (const std::string dtype : {"I8", "F8_E4M3", "F64", "U8", "I32"}) {
    const size_t bytes = dtype == "F64" ? 8 : dtype == "I32" ? 4 : 1;
    tensors_ = {{"w", dtype, {2, 2}, std::string(4 * bytes, 1)}};
    ops::PackedWeight weight;
    const auto added = Open().AddMatrix({2, RowOrder::kConcat, {{"w", 0, 2}}}, &weight);
    ASSERT_FALSE(added);
    EXPECT_EQ(added.error().code, Errc::kUnsupported);
    EXPECT_THAT(added.error().message,
                testing::AllOf(HasSubstr("tensor w is " + dtype + " [2, 2]"), HasSubstr("wanted is BF16, F16 or F32")));
  }
}

TEST_F(LoaderTest, TensorLeftOver_NamedWithTheirNumber) {
  Add("w", "BF16", {2, 2}, Values(4, 1));
  Add("x", "BF16", {1}, Values(1, 1));
  Add("y", "F32", {1}, Values(1, 1));
  ops::PackedWeight weight;
  ASSERT_TRUE(Open().AddMatrix({2, RowOrder::kConcat, {{"w", 0, 2}}}, &weight));
  EXPECT_THAT(RefusalOfLoad(),
              testing::AllOf(HasSubstr("model.safetensors: tensor x (BF16 [1]) and 1 more tensors are not part of the model")));
}

TEST_F(LoaderTest, AllowedGroups_CountedInTheReport) {
  Add("w", "BF16", {2, 2}, Values(4, 1));
  Add("mtp.a", "BF16", {1}, Values(1, 1));
  Add("visual.a", "BF16", {1}, Values(1, 1));
  Add("visual.b", "I8", {0}, {});
  ops::PackedWeight weight;
  ASSERT_TRUE(Open().AddMatrix({2, RowOrder::kConcat, {{"w", 0, 2}}}, &weight));
  loader_->AllowUnused("visual.", "vision");
  loader_->AllowUnused("mtp.", "mtp");
  EXPECT_EQ(RefusalOfLoad(), "accepted");
  EXPECT_THAT(loader_->UnusedReport(), testing::ElementsAre("1 mtp tensor", "2 vision tensors"));
}

TEST_F(LoaderTest, RowsUsedTwiceOrNever_Refused) {
  Add("w", "BF16", {4, 2}, Values(8, 1));
  ops::PackedWeight a;
  ops::PackedWeight b;
  ASSERT_TRUE(Open().AddMatrix({2, RowOrder::kConcat, {{"w", 0, 2, {4, 2}}}}, &a));
  EXPECT_THAT(RefusalOfLoad(), HasSubstr("tensor w is not used exactly once: see its element 4"));
  ASSERT_TRUE(Open().AddMatrix({2, RowOrder::kConcat, {{"w", 0, 4, {4, 2}}}}, &a));
  ASSERT_TRUE(loader_->AddMatrix({2, RowOrder::kConcat, {{"w", 2, 2, {4, 2}}}}, &b));
  EXPECT_THAT(RefusalOfLoad(), HasSubstr("tensor w is not used exactly once"));
}

TEST_F(LoaderTest, Mem2_ArenaAfterLoad_IsSealed) {
  Add("v", "F32", {4}, Values(4, 1));
  std::span<const float> v;
  const std::array<int64_t, 1> shape = {4};
  ASSERT_TRUE(Open().AddVector("v", shape, VectorTransform::kNone, &v));
  const device::Arena arena = Load();
  EXPECT_DEATH(const_cast<float&>(v[0]) = 1.0f, "");
}

TEST_F(LoaderTest, FileCutAfterOpen_IsAnErrorNotACrash) {
  Add("w", "BF16", {4096, 2048}, Values(4096 * 2048, 1));
  ops::PackedWeight weight;
  ASSERT_TRUE(Open().AddMatrix({2048, RowOrder::kConcat, {{"w", 0, 4096}}}, &weight));
  std::filesystem::resize_file(dir_.File("model.safetensors"), 1 << 20);
  EXPECT_THAT(RefusalOfLoad(),
              testing::AllOf(HasSubstr("model.safetensors: reading tensor w failed"), HasSubstr("it was longer when it was opened")));
}

#if defined(__SANITIZE_THREAD__)
constexpr bool kHasThreadSanitizer = true;
#elif defined(__has_feature)
constexpr bool kHasThreadSanitizer = __has_feature(thread_sanitizer);
#else
constexpr bool kHasThreadSanitizer = false;
#endif

size_t ResidentBytes() {
  size_t pages = 0;
  size_t resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * 4096;
}

// While the checkpoint is still open, resident memory has grown by the packed bytes and not by the file too.
TEST_F(LoaderTest, ResidentMemory_GrowsByThePackedBytesAlone) {
  if (kHasThreadSanitizer) GTEST_SKIP() << "the thread sanitizer's shadow memory is resident too";
  constexpr int64_t kRows = 32768;
  tensors_.push_back({"w", "BF16", {kRows, 1024}, std::string(kRows * 1024 * 2, 'a')});
  ops::PackedWeight weight;
  ASSERT_TRUE(Open().AddMatrix({1024, RowOrder::kConcat, {{"w", 0, kRows}}}, &weight));
  tensors_.clear();
  tensors_.shrink_to_fit();
  const size_t before = ResidentBytes();
  const device::Arena arena = Load();
  // 64 MiB packed; two buffers of 1 MiB, page tables and the pool's stacks take less than 16.
  EXPECT_LT(ResidentBytes(), before + arena.used_bytes() + (size_t{16} << 20));
}

}  // namespace
}  // namespace avocet::weights
