// The screen that a start prints: what was asked for and what came of it, so that nothing is silent (which kernels and why not better
// ones, where memory goes, which flags had no effect and why).
#pragma once

#include <string>
#include <vector>

#include "cli/assembly.h"
#include "cli/command_line.h"
#include "cli/environment.h"

namespace avocet::cli {

struct StartFacts {
  const CommandLine& line;
  const EnvReport& environment;
  const Assembly& assembly;
  double copy_rate_gb_per_s = 0;  // of a plain copy of the checkpoint, a moment later; 0: not measured
  double seconds = 0;             // from the start of the process to here
};

std::vector<std::string> DescribeStart(const StartFacts& facts);

// Parts that `avocet inspect` prints too.
std::vector<std::string> DescribeMachine(const Machine& machine);
std::vector<std::string> DescribeModel(const ModelFiles& files);
// One line per flag and variable without effect; empty when there is none.
std::vector<std::string> DescribeWithoutEffect(const Arguments& arguments, const EnvReport& environment);

// "name      text": sections line up; further lines of a section have an empty name.
std::string ReportLine(std::string_view name, std::string_view text);
void AppendSection(std::string_view name, const std::vector<std::string>& lines, std::vector<std::string>* out);

}  // namespace avocet::cli
