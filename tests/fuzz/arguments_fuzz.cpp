// Words of a command line: the parser answers every list of words with options or one line of error, and never reads past them.
// The input is split at NUL; its first byte chooses the command. --config is left out: the file system is not part of the input.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"
#include "cli/command_line.h"
#include "cli/config_file.h"
#include "cli/help.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace avocet::cli;  // NOLINT(google-build-using-namespace): one function
  if (size == 0) return 0;
  const auto command = static_cast<Command>(data[0] % 5);
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] >= 128) {
    const auto entries = ParseConfigText(text, "fuzz.yaml");
    CHECK(entries || !entries.error().message.empty(), "an error without a message");
    return 0;
  }

  std::vector<std::string> words;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('\0', at), text.size());
    words.push_back(text.substr(at, end - at));
    if (words.back().starts_with("--config")) words.pop_back();
    at = end + 1;
  }
  const auto line = ParseCommandLine(command, words);
  if (!line) {
    CHECK(!line.error().message.empty(), "an error without a message");
    CHECK(line.error().message.find('\n') == std::string::npos, "an error of several lines: {}", line.error().message);
    return 0;
  }
  if (line->arguments.help_topic) (void)CommandHelp(command, *line->arguments.help_topic);
  (void)CheckOptions(command, line->options);
  (void)NonDefaultArguments(line->arguments);
  (void)ArgumentsWithoutEffect(line->arguments);
  return 0;
}
