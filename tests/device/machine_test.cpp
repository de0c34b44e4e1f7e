// Topology, instruction sets and arenas.
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "device/arena.h"
#include "device/cpu_features.h"
#include "device/topology.h"

namespace avocet::device {
namespace {

// A folder that stands in for / : /proc and /sys as far as cgroups and memory go.
class FakeRoot {
 public:
  explicit FakeRoot(const char* name) : root_(std::filesystem::temp_directory_path() / ("avocet_" + std::string(name))) {
    std::filesystem::remove_all(root_);
  }
  ~FakeRoot() { std::filesystem::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::string path() const { return root_.string(); }

 private:
  std::filesystem::path root_;
};

TEST(Topology, CgroupV2_TightestParentCounts) {
  const FakeRoot root("cgroup2");
  root.Write("proc/meminfo", "MemTotal: 8000000 kB\nMemFree: 100 kB\nMemAvailable: 6000000 kB\n");
  root.Write("proc/self/cgroup", "0::/a/b\n");
  root.Write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  root.Write("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  root.Write("sys/fs/cgroup/a/memory.max", "1000000000\n");
  root.Write("sys/fs/cgroup/a/memory.current", "700000000\n");
  root.Write("sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 200000000\n");
  const Topology topology = DetectTopology(root.path()).value();
  EXPECT_DOUBLE_EQ(topology.quota_cores, 1.5);
  EXPECT_EQ(topology.memory_bytes, size_t{8000000} << 10);
  EXPECT_EQ(topology.memory_limit_bytes, 1'000'000'000u);
  EXPECT_EQ(topology.memory_available_bytes, 500'000'000u);
  EXPECT_GE(topology.cores.size(), 1u);
}

TEST(Topology, CgroupV1_QuotaAndLimit) {
  const FakeRoot root("cgroup1");
  root.Write("proc/meminfo", "MemTotal: 8000000 kB\nMemAvailable: 6000000 kB\n");
  root.Write("proc/self/cgroup", "4:memory:/x\n3:cpu,cpuacct:/x\n");
  root.Write("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "300000\n");
  root.Write("sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
  root.Write("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712\n");
  const Topology topology = DetectTopology(root.path()).value();
  EXPECT_DOUBLE_EQ(topology.quota_cores, 3.0);
  EXPECT_EQ(topology.memory_limit_bytes, topology.memory_bytes);
}

Topology Cores(int32_t count, double quota = 0) {
  Topology topology;
  for (int32_t i = 0; i < count; ++i) topology.cores.push_back({2 * i, 0});
  topology.quota_cores = quota;
  return topology;
}

TEST(Topology, WorkerCpus_FollowCoresQuotaAndBinding) {
  using Cpus = std::vector<int32_t>;
  EXPECT_EQ(ChooseWorkerCpus(Cores(2), 0, "").value(), (Cpus{0, 2}));
  EXPECT_EQ(ChooseWorkerCpus(Cores(8), 0, "").value().size(), 7u);  // one core is left for io
  EXPECT_EQ(ChooseWorkerCpus(Cores(4), 0, "auto").value().size(), 4u);
  EXPECT_EQ(ChooseWorkerCpus(Cores(4, 2.9), 0, "").value().size(), 2u);
  EXPECT_EQ(ChooseWorkerCpus(Cores(4, 0.5), 0, "").value().size(), 1u);
  EXPECT_EQ(ChooseWorkerCpus(Cores(4), 2, "nobind").value(), (Cpus{-1, -1}));
  EXPECT_EQ(ChooseWorkerCpus(Cores(2), 4, "").value(), (Cpus{-1, -1, -1, -1}));
  EXPECT_EQ(ChooseWorkerCpus(Cores(2), 0, "0-2,7|8-9").value(), (Cpus{0, 1, 2, 7}));
  EXPECT_EQ(ChooseWorkerCpus(Cores(2), 2, "4-7").value(), (Cpus{4, 5}));
  for (const char* bad : {"x", "3-1", "-1", "1-", ",", "1,,2", "99999"}) {
    const auto result = ChooseWorkerCpus(Cores(2), 0, bad);
    ASSERT_FALSE(result) << bad;
    EXPECT_NE(result.error().message.find("VLLM_CPU_OMP_THREADS_BIND"), std::string::npos);
  }
  EXPECT_FALSE(ChooseWorkerCpus(Cores(2), 100'000, ""));
}

TEST(CpuFeatures, IsaVariable_LowersButNeverRaises) {
  const char* before = std::getenv("AVOCET_ISA");
  const std::string saved = before != nullptr ? before : "";
  CpuFeatures cpu;
  cpu.avx2_fma = true;
  cpu.avx512 = true;
  unsetenv("AVOCET_ISA");
  EXPECT_EQ(ChooseIsa(cpu).value(), Isa::kAvx512);
  setenv("AVOCET_ISA", "avx2", 1);
  EXPECT_EQ(ChooseIsa(cpu).value(), Isa::kAvx2);
  setenv("AVOCET_ISA", "avx512_bf16", 1);
  EXPECT_FALSE(ChooseIsa(cpu));
  setenv("AVOCET_ISA", "sse9", 1);
  EXPECT_FALSE(ChooseIsa(cpu));
  unsetenv("AVOCET_ISA");
  EXPECT_FALSE(ChooseIsa(CpuFeatures{})) << "no AVX2 is refused";
  setenv("AVOCET_ISA", "ref", 1);
  EXPECT_EQ(ChooseIsa(CpuFeatures{}).value(), Isa::kRef);
  if (before != nullptr) {
    setenv("AVOCET_ISA", saved.c_str(), 1);
  } else {
    unsetenv("AVOCET_ISA");
  }
}

TEST(Arena, Pieces_AreAlignedZeroAndDisjoint) {
  Arena arena = Arena::Create("test", 1 << 20).value();
  std::byte* first = arena.Allocate(100);
  std::byte* second = arena.Allocate(4096, 4096);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arena.data()) % (2 << 20), 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(second) % 4096, 0u);
  EXPECT_GE(second, first + 100);
  for (int i = 0; i < 4096; ++i) ASSERT_EQ(second[i], std::byte{0});
  const Arena moved = std::move(arena);
  EXPECT_EQ(moved.data(), first);
}

TEST(Arena, BeyondAnyMachine_IsRefusedByName) {
  const auto result = Arena::Create("K/V pages", SIZE_MAX / 2);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("K/V pages"), std::string::npos);
}

TEST(ArenaDeath, Mem2_WriteAfterSeal_Dies) {
  Arena arena = Arena::Create("weights", 4096).value();
  std::byte* data = arena.Allocate(64);
  std::memset(data, 1, 64);
  arena.Seal();
  EXPECT_EQ(data[5], std::byte{1});
  EXPECT_DEATH(data[0] = std::byte{2}, "");
}

TEST(ArenaDeath, MoreThanPlanned_Dies) {
  Arena arena = Arena::Create("workspace", 4096).value();
  EXPECT_DEATH(arena.Allocate(size_t{3} << 20), "workspace");
}

}  // namespace
}  // namespace avocet::device
