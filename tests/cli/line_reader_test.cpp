#include "cli/line_reader.h"

#include <unistd.h>

#include <gtest/gtest.h>

namespace avocet::cli {
namespace {

std::vector<std::string> LinesOf(const std::string& text) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  EXPECT_EQ(write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  close(ends[1]);
  LineReader reader(ends[0]);
  std::vector<std::string> lines;
  for (std::string line; reader.Next(&line) == LineReader::Outcome::kLine;) lines.push_back(line);
  close(ends[0]);
  return lines;
}

TEST(LineReader, Text_IsCutAtNewlines) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(LinesOf(""), Lines{});
  EXPECT_EQ(LinesOf("\n"), Lines{""});
  EXPECT_EQ(LinesOf("a\nb"), (Lines{"a", "b"}));
  EXPECT_EQ(LinesOf("a\r\n\nb\n"), (Lines{"a", "", "b"}));
  EXPECT_EQ(LinesOf(std::string(10000, 'x') + "\ny"), (Lines{std::string(10000, 'x'), "y"}));
}

}  // namespace
}  // namespace avocet::cli
