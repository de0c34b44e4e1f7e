// int8 checkpoints: what is packed, and that every malformed description, scale, shape or type is refused by its tensor's name.
#include <cmath>
#include <functional>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/safetensors_writer.h"
#include "weights/loader.h"

namespace avocet::weights {
namespace {

using test::F32Bytes;
using test::SafetensorsFile;
using test::TempDir;
using testing::HasSubstr;

constexpr int64_t kRows = 20;
constexpr int64_t kCols = 10;

template <typename T>
std::string Raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// A folder with one linear layer "a" of each type, as msModelSlim writes them, and the means to spoil it.
struct Folder {
  std::map<std::string, test::TensorData> tensors;
  std::map<std::string, std::string> types;  // of the description, value as JSON

  Folder() {
    std::vector<int8_t> q(kRows * kCols);
    for (size_t i = 0; i < q.size(); ++i) q[i] = static_cast<int8_t>(static_cast<int>(i * 37 % 255) - 127);
    std::vector<float> scales(kRows);
    std::vector<int32_t> biases(kRows);
    for (size_t r = 0; r < scales.size(); ++r) {
      scales[r] = 0.25f * static_cast<float>(r + 1);
      biases[r] = static_cast<int32_t>(r) * 1000 - 7000;
    }
    Add("d.weight", "I8", {kRows, kCols}, Raw(q), "W8A8_DYNAMIC");
    Add("d.weight_scale", "F32", {kRows, 1}, F32Bytes(scales), "W8A8_DYNAMIC");
    Add("d.weight_offset", "F32", {kRows, 1}, F32Bytes(std::vector<float>(kRows)), "W8A8_DYNAMIC");
    Add("s.weight", "I8", {kRows, kCols}, Raw(q), "W8A8");
    Add("s.input_scale", "F32", {1}, F32Bytes({0.5f}), "W8A8");
    Add("s.input_offset", "F32", {1}, F32Bytes({3}), "W8A8");
    Add("s.deq_scale", "F32", {kRows}, F32Bytes(scales), "W8A8");
    Add("s.quant_bias", "I32", {kRows}, Raw(biases), "W8A8");
  }
  void Add(const std::string& name, const std::string& dtype, std::vector<int64_t> shape, const std::string& bytes,
           const std::string& type) {
    tensors[name] = {name, dtype, std::move(shape), bytes};
    types[name] = "\"" + type + "\"";
  }
  std::string Description() const {
    std::string text = R"({"model_quant_type": "W8A8", "version": "1.0.0", "metadata": {}, "group_size": 0)";
    for (const auto& [name, type] : types) text += ", \"" + name + "\": " + type;
    return text + "}";
  }
};

struct Loaded {
  ops::PackedWeight dynamic, fixed;
  device::Arena arena;
};

Result<Loaded> Load(const Folder& folder, MatrixRole role = MatrixRole::kProduct) {
  TempDir dir;
  std::vector<test::TensorData> tensors;
  for (const auto& [name, tensor] : folder.tensors) tensors.push_back(tensor);
  dir.Write("model.safetensors", SafetensorsFile(tensors));
  dir.Write(QuantDescription::kFileName, folder.Description());
  AVOCET_TRY(const std::optional<QuantDescription> description, QuantDescription::Load(dir.path()));
  AVOCET_TRY(const Checkpoint checkpoint, Checkpoint::Open(dir.path()));
  Loader loader(checkpoint, WeightPolicy::kExact,
                {.description = &*description, .by_dtype = false, .fp8_block = 0, .rounds_floats = false});
  Loaded loaded;
  AVOCET_TRY_VOID(loader.AddMatrix({kCols, RowOrder::kConcat, {{"d.weight", 0, kRows}}, role}, &loaded.dynamic));
  AVOCET_TRY_VOID(loader.AddMatrix({kCols, RowOrder::kConcat, {{"s.weight", 0, kRows}}}, &loaded.fixed));
  device::WorkerPoolOptions options;
  options.cpus.assign(2, -1);
  const auto pool = device::WorkerPool::Create(options).value();
  AVOCET_TRY(loaded.arena, loader.Load(*pool, {}));
  return loaded;
}

int32_t QOf(int64_t row, int64_t col) {
  return static_cast<int32_t>(static_cast<size_t>(row * kCols + col) * 37 % 255) - 127;
}

TEST(Int8Loader, DynamicAndStatic_AreAsInTheFile) {
  const auto loaded = Load(Folder());
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->dynamic.format, ops::WeightFormat::kInt8);
  EXPECT_TRUE(loaded->dynamic.input.is_dynamic());
  EXPECT_EQ(loaded->fixed.input, (ops::Int8Input{0.5f, 3}));
  for (int32_t r = 0; r < kRows; ++r) {
    const float scale = 0.25f * static_cast<float>(r + 1);
    int32_t sum = 0;
    for (int32_t c = 0; c < kCols; ++c) {
      EXPECT_EQ(ops::PackedElement(loaded->dynamic, r, c), static_cast<float>(QOf(r, c)) * scale);
      EXPECT_EQ(ops::PackedElement(loaded->fixed, r, c), static_cast<float>(QOf(r, c)) * scale);
      sum += QOf(r, c);
    }
    int32_t bias = 0;
    const size_t panel = ops::PanelBytes(ops::WeightFormat::kInt8, kCols);
    std::memcpy(&bias, loaded->fixed.data + static_cast<size_t>(r / 16 + 1) * panel - 64 + static_cast<size_t>(r % 16) * 4, 4);
    EXPECT_EQ(bias, r * 1000 - 7000 - 128 * sum) << r;
  }
}

TEST(Int8Loader, DeqScaleAsBitPatterns_IsTheSame) {
  Folder folder;
  std::vector<int64_t> patterns;
  for (int64_t r = 0; r < kRows; ++r) patterns.push_back(std::bit_cast<uint32_t>(0.25f * static_cast<float>(r + 1)));
  folder.Add("s.deq_scale", "I64", {kRows}, Raw(patterns), "W8A8");
  const auto loaded = Load(folder);
  ASSERT_TRUE(loaded) << loaded.error().message;
  for (int32_t r = 0; r < kRows; ++r) {
    EXPECT_EQ(ops::PackedElement(loaded->fixed, r, 3), static_cast<float>(QOf(r, 3)) * 0.25f * static_cast<float>(r + 1));
  }
}

TEST(Int8Loader, Gate_IsWidened) {
  const auto loaded = Load(Folder(), MatrixRole::kGate);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->dynamic.format, ops::WeightFormat::kF32);
  EXPECT_EQ(ops::PackedElement(loaded->dynamic, 19, 9), static_cast<float>(QOf(19, 9)) * 5.0f);
}

struct Spoiled {
  std::string name;
  std::function<void(Folder&)> spoil;
  std::vector<std::string> says;  // parts of the one line
};

std::vector<Spoiled> AllSpoiled() {
  const auto with = [](const std::string& name, const std::string& dtype, std::vector<int64_t> shape, std::string bytes) {
    return [=](Folder& folder) { folder.tensors[name] = {name, dtype, shape, bytes}; };
  };
  const auto without = [](const std::string& name) { return [=](Folder& folder) { folder.tensors.erase(name); }; };
  const auto typed = [](const std::string& name, const std::string& type) { return [=](Folder& folder) { folder.types[name] = type; }; };
  const auto scale_of = [](const std::string& name, float value) {
    return [=](Folder& folder) { std::memcpy(folder.tensors[name].bytes.data() + 4 * 7, &value, 4); };
  };
  std::vector<Spoiled> all = {
      {"unknown type", typed("d.weight", "\"W9A9\""), {"d.weight", "W9A9", "unknown type"}},
      {"type not served", typed("d.weight", "\"W4A8_DYNAMIC\""), {"d.weight", "W4A8_DYNAMIC"}},
      {"type is a number", typed("d.weight", "8"), {"d.weight", "not a string"}},
      {"int8 called float", typed("d.weight", "\"FLOAT\""), {"d.weight", "I8", "BF16"}},
      {"float called int8",
       with("d.weight", "F32", {kRows, kCols}, F32Bytes(std::vector<float>(kRows * kCols))),
       {"d.weight", "F32", "I8"}},
      {"weight of another shape",
       with("d.weight", "I8", {kRows, kCols - 1}, std::string(kRows * (kCols - 1), 1)),
       {"d.weight", "[20, 10]"}},
      {"scales of another length",
       with("d.weight_scale", "F32", {kRows - 1, 1}, F32Bytes(std::vector<float>(kRows - 1, 1))),
       {"d.weight_scale", "[19, 1]", "[20, 1]"}},
      {"scales of another type",
       with("d.weight_scale", "I32", {kRows, 1}, F32Bytes(std::vector<float>(kRows, 1))),
       {"d.weight_scale", "I32", "F32"}},
      {"offset that is not zero", scale_of("d.weight_offset", 1), {"d.weight_offset", "row 7", "symmetric"}},
      {"input_scale of zero", with("s.input_scale", "F32", {1}, F32Bytes({0})), {"s.input_scale", "above 0"}},
      {"input_scale not a number", with("s.input_scale", "F32", {1}, F32Bytes({std::nanf("")})), {"s.input_scale", "nan"}},
      {"two input scales", with("s.input_scale", "F32", {2}, F32Bytes({1, 1})), {"s.input_scale", "[2]"}},
      {"biases of another type", with("s.quant_bias", "F32", {kRows}, F32Bytes(std::vector<float>(kRows))), {"s.quant_bias", "F32", "I32"}},
      {"a tensor too many", with("x.weight", "I8", {1, 1}, "1"), {"x.weight", "not part of the model"}},
  };
  for (const char* name : {"d.weight", "d.weight_scale", "s.weight", "s.input_scale", "s.input_offset", "s.deq_scale", "s.quant_bias"}) {
    all.push_back({std::string("without ") + name, without(name), {name, "has no tensor"}});
  }
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY, -1.0f}) {
    for (const char* name : {"d.weight_scale", "s.deq_scale"}) {
      all.push_back({std::string("bad value in ") + name, scale_of(name, bad), {name, "row 7", "finite"}});
    }
  }
  return all;
}

TEST(Int8Loader, EverySpoiledFolder_RefusedByName) {
  for (const Spoiled& spoiled : AllSpoiled()) {
    SCOPED_TRACE(spoiled.name);
    Folder folder;
    spoiled.spoil(folder);
    const auto loaded = Load(folder);
    ASSERT_FALSE(loaded);
    for (const std::string& part : spoiled.says) EXPECT_THAT(loaded.error().message, HasSubstr(part));
    EXPECT_EQ(loaded.error().message.find('\n'), std::string::npos);
  }
}

// Fused modules whose parts disagree.
TEST(Int8Loader, PartsOfOneProduct_HaveOneTypeAndOneInput) {
  TempDir dir;
  Folder folder;
  folder.Add("t.weight", "I8", {kRows, kCols}, folder.tensors["s.weight"].bytes, "W8A8");
  folder.Add("t.input_scale", "F32", {1}, F32Bytes({0.75f}), "W8A8");
  for (const char* side : {"input_offset", "deq_scale", "quant_bias"}) {
    const test::TensorData& other = folder.tensors[std::string("s.") + side];
    folder.Add(std::string("t.") + side, other.dtype, other.shape, other.bytes, "W8A8");
  }
  std::vector<test::TensorData> tensors;
  for (const auto& [name, tensor] : folder.tensors) tensors.push_back(tensor);
  dir.Write("model.safetensors", SafetensorsFile(tensors));
  const auto checkpoint = Checkpoint::Open(dir.path());
  const auto description = QuantDescription::Parse("d.json", folder.Description());
  ASSERT_TRUE(description);
  Loader loader(*checkpoint, WeightPolicy::kExact,
                {.description = &*description, .by_dtype = false, .fp8_block = 0, .rounds_floats = false});
  ops::PackedWeight weight;
  const auto types = loader.AddMatrix({kCols, RowOrder::kConcat, {{"d.weight", 0, kRows}, {"s.weight", 0, kRows}}}, &weight);
  ASSERT_FALSE(types);
  EXPECT_THAT(types.error().message, testing::AllOf(HasSubstr("s.weight has the type W8A8, but d.weight has W8A8_DYNAMIC")));
  const auto inputs = loader.AddMatrix({kCols, RowOrder::kConcat, {{"s.weight", 0, kRows}, {"t.weight", 0, kRows}}}, &weight);
  ASSERT_FALSE(inputs);
  EXPECT_THAT(inputs.error().message, testing::AllOf(HasSubstr("s.weight and t.weight have different input_scale"), HasSubstr("0.75")));
}

TEST(QuantDescription, Hostile_OneLine) {
  for (const std::string text : {"", "[]", "{", "{\"a\": null}", "{\"a\": {\"b\": 1}}", "null", "{\"kv_cache_type\": \"C8\"}"}) {
    const auto parsed = QuantDescription::Parse("d.json", text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_THAT(parsed.error().message, HasSubstr("d.json"));
  }
}

// --quantization int8: as QuantizeWeightRow says, padding untouched.
TEST(Int8Loader, FloatsRoundedAtLoad_HalfAStepAtMost) {
  TempDir dir;
  std::vector<float> values(kRows * kCols);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i)) * static_cast<float>(i / kCols + 1);
  dir.Write("model.safetensors", SafetensorsFile({{"w", "F32", {kRows, kCols}, F32Bytes(values)}}));
  const auto checkpoint = Checkpoint::Open(dir.path());
  Loader loader(*checkpoint, WeightPolicy::kExact, {.description = nullptr, .by_dtype = false, .fp8_block = 0, .rounds_floats = true});
  ops::PackedWeight weight;
  ASSERT_TRUE(loader.AddMatrix({kCols, RowOrder::kConcat, {{"w", 0, kRows}}}, &weight));
  device::WorkerPoolOptions options;
  options.cpus.assign(2, -1);
  const auto pool = device::WorkerPool::Create(options).value();
  const auto arena = loader.Load(*pool, {});
  ASSERT_TRUE(arena) << arena.error().message;
  EXPECT_EQ(weight.format, ops::WeightFormat::kInt8);
  for (int32_t r = 0; r < kRows; ++r) {
    float largest = 0;
    for (int32_t c = 0; c < kCols; ++c) largest = std::max(largest, std::fabs(values[static_cast<size_t>(r * kCols + c)]));
    for (int32_t c = 0; c < kCols; ++c) {
      // Half a step, and an ulp for the two roundings of f32.
      EXPECT_NEAR(ops::PackedElement(weight, r, c), values[static_cast<size_t>(r * kCols + c)], largest / 127 * 0.5001f) << r << ", " << c;
    }
  }
}

}  // namespace
}  // namespace avocet::weights
