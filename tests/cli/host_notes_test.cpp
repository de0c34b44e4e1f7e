#include "cli/host_notes.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace avocet::cli {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class HostNotesTest : public testing::Test {
 protected:
  void SetUp() override { root_ = fs::temp_directory_path() / fmt::format("avocet-host-{}", getpid()); }
  void TearDown() override { fs::remove_all(root_); }
  void Put(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::vector<std::string> Notes(int num_numa_nodes) { return HostNotes(num_numa_nodes, root_.string()); }
  fs::path root_;
};

TEST_F(HostNotesTest, NothingToRead_SaysNothing) {
  EXPECT_THAT(Notes(2), IsEmpty());
}

TEST_F(HostNotesTest, GoodHost_SaysNothing) {
  Put("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n");
  Put("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  Put("proc/sys/vm/swappiness", "60\n");
  Put("proc/swaps", "Filename Type Size Used Priority\n");
  Put("proc/sys/kernel/numa_balancing", "1\n");
  EXPECT_THAT(Notes(1), IsEmpty());
}

TEST_F(HostNotesTest, EachSettingThatCostsSpeed_IsNamed) {
  Put("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
  Put("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  Put("proc/sys/vm/swappiness", "60\n");
  Put("proc/swaps", "Filename Type Size Used Priority\n/swap file 1 0 -2\n");
  Put("proc/sys/kernel/numa_balancing", "1\n");
  EXPECT_THAT(Notes(2),
              ElementsAre(HasSubstr("powersave"), HasSubstr("huge pages"), HasSubstr("swappiness is 60"), HasSubstr("numa_balancing")));
}

}  // namespace
}  // namespace avocet::cli
