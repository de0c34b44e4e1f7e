#include "cli/human_number.h"

#include <gtest/gtest.h>

namespace avocet::cli {
namespace {

struct Case {
  std::string text;
  int64_t value;
};

TEST(HumanInt, Spellings_Parse_ExactValue) {
  const Case cases[] = {{"0", 0},
                        {"4096", 4096},
                        {" 5 ", 5},
                        {"+7", 7},
                        {"-1", -1},
                        {"1k", 1000},
                        {"1K", 1024},
                        {"2m", 2'000'000},
                        {"2M", 2 << 20},
                        {"3g", 3'000'000'000},
                        {"4G", int64_t{4} << 30},
                        {"1t", 1'000'000'000'000},
                        {"1T", int64_t{1} << 40},
                        {"25.6k", 25600},
                        {"0.5k", 500},
                        {"1.005k", 1005},  // 1.005 * 1000 in doubles is 1004.99...
                        {"1.2345k", 1234},
                        {"1.9999999999999999999k", 1999},
                        {"9223372036854775807", 9223372036854775807}};
  for (const Case& test : cases) {
    const auto value = ParseHumanInt(test.text);
    ASSERT_TRUE(value) << test.text << ": " << value.error().message;
    EXPECT_EQ(*value, test.value) << test.text;
  }
}

TEST(HumanInt, Malformed_Parse_Error) {
  for (const char* text : {"",
                           " ",
                           "-",
                           "+",
                           "k",
                           "x",
                           "1x",
                           "1kk",
                           "1.5",
                           "1.k",
                           ".5k",
                           "1..5k",
                           "1e3",
                           "0x10",
                           "--1",
                           "1 2",
                           "nan",
                           "inf",
                           "9223372036854775808",
                           "9999999t",
                           "9223372036854775807k",
                           "1.5kk",
                           "1,5k"}) {
    EXPECT_FALSE(ParseHumanInt(text)) << text;
  }
}

TEST(HumanInt, FractionWithBinarySuffix_Parse_SuggestsDecimal) {
  const auto value = ParseHumanInt("1.5K");
  ASSERT_FALSE(value);
  EXPECT_NE(value.error().message.find("1.5k"), std::string::npos) << value.error().message;
}

TEST(Format, Numbers_Format_Readable) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1000), "1,000");
  EXPECT_EQ(FormatCount(-1234567), "-1,234,567");
  EXPECT_EQ(FormatBytes(512), "512 B");
  EXPECT_EQ(FormatBytes(size_t{3} << 29), "1.50 GiB");
}

}  // namespace
}  // namespace avocet::cli
