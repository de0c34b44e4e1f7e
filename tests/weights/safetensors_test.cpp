#include "weights/safetensors.h"

#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/limits.h"
#include "support/safetensors_writer.h"

namespace avocet::weights {
namespace {

using test::SafetensorsFile;
using testing::HasSubstr;

Result<std::vector<TensorEntry>> Parse(const std::string& file) {
  return ParseSafetensors("x.safetensors", std::as_bytes(std::span(file)));
}

// The message of a file that must be refused: one line that names the file.
std::string RefusalOf(const std::string& file) {
  const auto result = Parse(file);
  if (result) return "accepted";
  EXPECT_THAT(result.error().message, testing::StartsWith("x.safetensors"));
  EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
  return result.error().message;
}

std::string RefusalOfHeader(const std::string& header, const std::string& data = "") {
  return RefusalOf(SafetensorsFile(header, data));
}

std::string Entry(const std::string& name, const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

TEST(Safetensors, TwoTensors_ListedInFileOrderWithAbsoluteOffsets) {
  const std::string header = "{" + Entry("b", "F32", "[2]", "[4,12]") + "," + Entry("a", "BF16", "[2,1]", "[0,4]") + "}";
  const auto tensors = Parse(SafetensorsFile(header, std::string(12, 'x')));
  ASSERT_TRUE(tensors) << tensors.error().message;
  ASSERT_EQ(tensors->size(), 2u);
  EXPECT_EQ((*tensors)[0].name, "a");
  EXPECT_EQ((*tensors)[0].dtype, DType::kBf16);
  EXPECT_EQ((*tensors)[0].shape, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ((*tensors)[0].begin, 8 + header.size());
  EXPECT_EQ((*tensors)[1].end, 8 + header.size() + 12);
}

TEST(Safetensors, EveryDtypeName_RoundTrips) {
  for (const auto& [name, bytes] : std::vector<std::pair<std::string, size_t>>{{"BF16", 2},
                                                                               {"F16", 2},
                                                                               {"F32", 4},
                                                                               {"F64", 8},
                                                                               {"F8_E4M3", 1},
                                                                               {"F8_E5M2", 1},
                                                                               {"I8", 1},
                                                                               {"U8", 1},
                                                                               {"I16", 2},
                                                                               {"I32", 4},
                                                                               {"I64", 8},
                                                                               {"BOOL", 1},
                                                                               {"U16", 2},
                                                                               {"U32", 4},
                                                                               {"U64", 8},
                                                                               {"F8_E8M0", 1}}) {
    const auto tensors =
        Parse(SafetensorsFile("{" + Entry("t", name, "[3]", "[0," + std::to_string(3 * bytes) + "]") + "}", std::string(3 * bytes, 0)));
    ASSERT_TRUE(tensors) << tensors.error().message;
    EXPECT_EQ(DTypeName(tensors->front().dtype), name);
    EXPECT_EQ(DTypeBytes(tensors->front().dtype), bytes);
  }
}

TEST(Safetensors, ScalarsEmptyTensorsAndMetadata_Accepted) {
  const std::string header = R"({"__metadata__":{"format":"pt","x":{"deep":[1,{"a":null}]}},)" + Entry("scalar", "F32", "[]", "[0,4]") +
                             "," + Entry("none", "F32", "[0,7]", "[4,4]") + "}   ";
  const auto tensors = Parse(SafetensorsFile(header, "abcd"));
  ASSERT_TRUE(tensors) << tensors.error().message;
  EXPECT_EQ(tensors->size(), 2u);
}

TEST(Safetensors, UnknownFields_Skipped) {
  const std::string header =
      R"({"t":{"note":[{"a":[1]}],"dtype":"F32","n":1.5,"b":true,"shape":[1],"s":"x","data_offsets":[0,4],"o":{"shape":[9]}}})";
  const auto tensors = Parse(SafetensorsFile(header, "abcd"));
  ASSERT_TRUE(tensors) << tensors.error().message;
  EXPECT_EQ(tensors->front().shape, std::vector<int64_t>{1});
}

TEST(Safetensors, FileShorterThanItsLength_Refused) {
  EXPECT_THAT(RefusalOf(""), HasSubstr("has 0 bytes"));
  EXPECT_THAT(RefusalOf("1234567"), HasSubstr("has 7 bytes"));
  EXPECT_THAT(RefusalOf(std::string("\x10\0\0\0\0\0\0\0{}", 10)), HasSubstr("the header has 16 bytes, the file 10"));
}

TEST(Safetensors, HugeHeaderLength_RefusedWithoutAllocation) {
  std::string file = SafetensorsFile("{}", "");
  for (const uint64_t length : {uint64_t{1} << 60, ~uint64_t{0}, uint64_t{limits::kSafetensorsHeaderBytesMax} + 1}) {
    std::memcpy(file.data(), &length, 8);
    EXPECT_THAT(RefusalOf(file), HasSubstr("the format allows 104857600"));
  }
}

TEST(Safetensors, HeaderThatIsNotATable_Refused) {
  EXPECT_THAT(RefusalOfHeader("not json"), HasSubstr("not JSON at its byte"));
  EXPECT_THAT(RefusalOfHeader(R"({"a":{"dtype":"F32")"), HasSubstr("not JSON at its byte"));
  EXPECT_THAT(RefusalOfHeader("{} {}"), HasSubstr("not JSON at its byte"));
  EXPECT_THAT(RefusalOfHeader(""), HasSubstr("not JSON at its byte"));
  EXPECT_THAT(RefusalOfHeader("{\"\xff\":1}"), HasSubstr("not JSON at its byte"));
  EXPECT_THAT(RefusalOfHeader("[]"), HasSubstr("holds an array where the table"));
  EXPECT_THAT(RefusalOfHeader("7"), HasSubstr("holds a number where the table"));
  EXPECT_THAT(RefusalOfHeader("null"), HasSubstr("holds null where the table"));
  EXPECT_THAT(RefusalOfHeader(R"({"t":5})"), HasSubstr("tensor t holds a number"));
  EXPECT_THAT(RefusalOfHeader(R"({"t":[]})"), HasSubstr("tensor t holds an array"));
  EXPECT_THAT(RefusalOfHeader(R"({"__metadata__":5})"), HasSubstr("__metadata__ holds a number"));
}

TEST(Safetensors, DeepNesting_RefusedAtTheBound) {
  const std::string deep = "{\"__metadata__\":" + std::string(5'000'000, '[');
  EXPECT_THAT(RefusalOfHeader(deep), HasSubstr("nests deeper than 128"));
  const std::string objects = [] {
    std::string text = "{\"t\":{\"x\":";
    for (int i = 0; i < 200; ++i) text += "{\"x\":";
    return text;
  }();
  EXPECT_THAT(RefusalOfHeader(objects), HasSubstr("nests deeper than 128"));
}

TEST(Safetensors, FieldOfWrongType_NamesTheTensor) {
  EXPECT_THAT(RefusalOfHeader(R"({"t":{"dtype":7,"shape":[1],"data_offsets":[0,4]}})"), HasSubstr("tensor t holds a number"));
  EXPECT_THAT(RefusalOfHeader(R"({"t":{"dtype":"F4","shape":[1],"data_offsets":[0,4]}})"), HasSubstr("unknown dtype \"F4\""));
  EXPECT_THAT(RefusalOfHeader(R"({"t":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})"), HasSubstr("tensor t holds a negative number"));
  EXPECT_THAT(RefusalOfHeader(R"({"t":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})"), HasSubstr("tensor t holds a fraction"));
  EXPECT_THAT(RefusalOfHeader(R"({"t":{"dtype":"F32","shape":[1e400],"data_offsets":[0,4]}})"), HasSubstr("not JSON"));
  EXPECT_THAT(RefusalOfHeader(R"({"t":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}})"), HasSubstr("tensor t holds a string"));
  EXPECT_THAT(RefusalOfHeader(R"({"t":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})"), HasSubstr("tensor t holds an array"));
  EXPECT_THAT(RefusalOfHeader(R"({"t":{"dtype":"F32","shape":5,"data_offsets":[0,4]}})"), HasSubstr("tensor t holds a number"));
  EXPECT_THAT(RefusalOfHeader(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})"), HasSubstr("more than two data_offsets"));
  EXPECT_THAT(RefusalOfHeader(R"({"t":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}})"),
              HasSubstr("tensor t holds an array"));
  EXPECT_THAT(RefusalOfHeader(R"({"t":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})"),
              HasSubstr("more than 8 dimensions"));
  EXPECT_THAT(RefusalOfHeader(R"({"t":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})"),
              HasSubstr("a dimension of 18446744073709551615"));
}

TEST(Safetensors, MissingField_NamesIt) {
  EXPECT_THAT(RefusalOfHeader(R"({"t":{"shape":[1],"data_offsets":[0,4]}})", "abcd"), HasSubstr("tensor t lacks its dtype"));
  EXPECT_THAT(RefusalOfHeader(R"({"t":{"dtype":"F32","data_offsets":[0,4]}})", "abcd"), HasSubstr("tensor t lacks its shape"));
  EXPECT_THAT(RefusalOfHeader(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", "abcd"), HasSubstr("lacks its two data_offsets"));
  EXPECT_THAT(RefusalOfHeader(R"({"t":{}})"), HasSubstr("tensor t lacks its dtype"));
}

TEST(Safetensors, NameThatCannotBeShown_Refused) {
  EXPECT_THAT(RefusalOfHeader(R"({"a\nb":{}})"), HasSubstr("tensor name \"a?b\""));
  EXPECT_THAT(RefusalOfHeader(R"({"":{}})"), HasSubstr("tensor name \"\""));
  EXPECT_THAT(RefusalOfHeader("{\"" + std::string(2000, 'a') + "\":{}}"), HasSubstr("too long"));
}

TEST(Safetensors, TruncatedData_NamesTheTensor) {
  EXPECT_THAT(RefusalOfHeader("{" + Entry("t", "F32", "[4]", "[0,16]") + "}", std::string(15, 'x')),
              HasSubstr("tensor t lies at bytes 0..16 of the data, which has 15 (incomplete download?)"));
}

TEST(Safetensors, RangesThatOverlapOrLeaveHoles_Refused) {
  const auto file = [](const std::string& a, const std::string& b, size_t bytes) {
    return RefusalOfHeader("{" + Entry("a", "U8", "[4]", a) + "," + Entry("b", "U8", "[4]", b) + "}", std::string(bytes, 'x'));
  };
  EXPECT_EQ(file("[0,4]", "[4,8]", 8), "accepted");
  EXPECT_THAT(file("[0,4]", "[3,7]", 8), HasSubstr("tensors a and b overlap at byte 3"));
  EXPECT_THAT(file("[0,4]", "[0,4]", 4), HasSubstr("overlap at byte 0"));
  EXPECT_THAT(file("[0,4]", "[5,9]", 9), HasSubstr("bytes 4..5 of the data, before tensor b, belong to no tensor"));
  EXPECT_THAT(file("[0,4]", "[4,8]", 9), HasSubstr("the last 1 bytes of the file belong to no tensor"));
  EXPECT_THAT(file("[4,0]", "[4,8]", 8), HasSubstr("tensor a lies at bytes 4..0"));
  EXPECT_THAT(file("[0,4]", "[18446744073709551612,18446744073709551615]", 8), HasSubstr("tensor b lies at bytes"));
}

TEST(Safetensors, ShapeThatDisagreesWithItsBytes_Refused) {
  EXPECT_THAT(RefusalOfHeader("{" + Entry("t", "F32", "[2]", "[0,4]") + "}", "abcd"),
              HasSubstr("tensor t has 4 bytes, its shape F32 [2] asks for 8"));
  EXPECT_THAT(RefusalOfHeader("{" + Entry("t", "F32", "[4294967296,4294967296]", "[0,4]") + "}", "abcd"),
              HasSubstr("asks for more than 2^64"));
  // 2^62 * 4 elements wrap to zero bytes.
  EXPECT_THAT(RefusalOfHeader("{" + Entry("t", "F32", "[4611686018427387904,4]", "[0,0]") + "}"), HasSubstr("asks for more than 2^64"));
}

TEST(SafetensorsIndex, WeightMap_FilesNumberedOnce) {
  const auto index = ParseSafetensorsIndex("i", test::IndexFile({{"a", "x"}, {"b", "y"}, {"c", "x"}}));
  ASSERT_TRUE(index) << index.error().message;
  EXPECT_EQ(index->files, (std::vector<std::string>{"x", "y"}));
  ASSERT_EQ(index->entries.size(), 3u);
  EXPECT_EQ(index->entries[2].tensor, "c");
  EXPECT_EQ(index->entries[2].file, 0);
}

TEST(SafetensorsIndex, WrongContent_Refused) {
  const auto refusal = [](const std::string& json) {
    const auto index = ParseSafetensorsIndex("i.json", json);
    return index ? "accepted" : index.error().message;
  };
  EXPECT_THAT(refusal("{"), HasSubstr("i.json: the index is not JSON at its byte"));
  EXPECT_THAT(refusal("[]"), HasSubstr("where the weight_map is wanted"));
  EXPECT_THAT(refusal("{}"), HasSubstr("has no weight_map"));
  EXPECT_THAT(refusal(R"({"metadata":{"a":[1,2]},"x":3})"), HasSubstr("has no weight_map"));
  EXPECT_THAT(refusal(R"({"weight_map":[]})"), HasSubstr("holds an array"));
  EXPECT_THAT(refusal(R"({"weight_map":{"a":5}})"), HasSubstr("holds a number where the file of tensor a is wanted"));
  EXPECT_THAT(refusal(R"({"weight_map":{"a":{"b":"c"}}})"), HasSubstr("holds an object where the file of tensor a is wanted"));
  EXPECT_THAT(refusal("{\"x\":" + std::string(1000, '[')), HasSubstr("nests deeper than 128"));
}

// 100,000 tensors, as many as 150 layers of 220 experts: opening is linear in the header. The bound is 20 times what it takes here
// (0.15 s release), so that a loaded machine or a sanitizer passes and a quadratic step does not.
TEST(Safetensors, HundredThousandTensors_ParsedInLinearTime) {
  std::string header = "{";
  for (int i = 0; i < 100'000; ++i) {
    const std::string name =
        "model.language_model.layers." + std::to_string(i / 1000) + ".mlp.experts." + std::to_string(i % 1000) + ".gate_proj.weight";
    header += (i == 0 ? "" : ",") + Entry(name, "I8", "[1,1]", "[" + std::to_string(i) + "," + std::to_string(i + 1) + "]");
  }
  const std::string file = SafetensorsFile(header + "}", std::string(100'000, 'x'));
  const auto start = std::chrono::steady_clock::now();
  const auto tensors = Parse(file);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ASSERT_TRUE(tensors) << tensors.error().message;
  EXPECT_EQ(tensors->size(), 100'000u);
  EXPECT_LT(seconds, 3.0);
  RecordProperty("milliseconds", static_cast<int>(seconds * 1000));
}

}  // namespace
}  // namespace avocet::weights
