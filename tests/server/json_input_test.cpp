#include "server/json_input.h"

#include <string>

#include <gtest/gtest.h>

#include "base/limits.h"
#include "tokenizer/tokenizer_testing.h"

namespace avocet::server {
namespace {

std::string ErrorOf(std::string_view bytes) {
  const auto value = ParseJson(bytes, "the body");
  return value.has_value() ? "" : value.error().message;
}

std::string Nested(size_t levels) {
  return std::string(levels, '[') + std::string(levels, ']');
}

TEST(JsonInput, OrdinaryValues_AreRead) {
  const auto value = ParseJson(R"({"a":[1,-2,3.5,true,null,"\u00e9\u0000"],"b":{}})", "the body");
  ASSERT_TRUE(value.has_value());
  EXPECT_EQ(value->at("a").size(), 6u);
  EXPECT_EQ(value->at("a")[5].get<std::string>(), std::string("\u00e9\0", 3));
  EXPECT_EQ(DumpJson(*ParseJson("7", "it")), "7");
}

TEST(JsonInput, DuplicateKeys_LastValueAtFirstPlace) {
  EXPECT_EQ(DumpJson(*ParseJson(R"({"a":1,"b":2,"a":3,"c":4,"b":5})", "it")), R"({"a":3,"b":5,"c":4})");
}

TEST(JsonInput, Nesting_IsLimited) {
  EXPECT_EQ(ErrorOf(Nested(limits::kJsonDepthMax)), "");
  EXPECT_NE(ErrorOf(Nested(limits::kJsonDepthMax + 1)).find("nested deeper"), std::string::npos);
  EXPECT_NE(ErrorOf(Nested(1'000'000)).find("nested deeper"), std::string::npos);
  std::string objects;
  for (int i = 0; i < 1'000'000; ++i) objects += R"({"a":)";
  EXPECT_NE(ErrorOf(objects).find("nested deeper"), std::string::npos);
}

TEST(JsonInput, NumberOfValues_IsLimited) {
  std::string list = "[";
  for (size_t i = 0; i < limits::kJsonValuesMax; ++i) list += "0,";
  list.back() = ']';
  EXPECT_NE(ErrorOf(list).find("values"), std::string::npos);
}

TEST(JsonInput, WhatIsNoJson_IsRefused) {
  for (const std::string_view bytes : {"", " ", "{", "{a:1}", "NaN", "[Infinity]", "[1e999]", "[-1e999]", "{\"a\":1}x", "\"\xff\xfe\"",
                                       "\"\\ud800\"", "\"\\udc00\\ud800\"", "\"a\nb\"", "[1,]", "01", "tru"}) {
    EXPECT_NE(ErrorOf(bytes), "") << bytes;
  }
}

TEST(JsonInput, ErrorMessage_IsShortValidUtf8) {
  const std::string message = ErrorOf("{\"a\":\xff\xfe" + std::string(10'000, 'x'));
  EXPECT_LT(message.size(), 400u);
  EXPECT_NO_THROW((void)Json(DumpJson(Json(message))));
}

TEST(JsonInput, ObjectWithManyKeys_IsLinear) {
  const auto run = [](size_t num) {
    std::string object = "{";
    for (size_t i = 0; i < num; ++i) object += "\"k" + std::to_string(i) + "\":0,";
    object.back() = '}';
    ASSERT_TRUE(ParseJson(object, "it").has_value());
  };
  tokenizer::ExpectLinearTime(run, 20'000, "keys of one object");
}

}  // namespace
}  // namespace avocet::server
