#include "device/worker_pool.h"

#include <ctime>

#include <array>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace avocet::device {
namespace {

std::unique_ptr<WorkerPool> MakePool(int32_t workers, int32_t spin_us = 50) {
  WorkerPoolOptions options;
  options.cpus.assign(static_cast<size_t>(workers), -1);
  options.spin_us = spin_us;
  return WorkerPool::Create(options).value();
}

TEST(WorkerPool, Run_EveryWorkerOnce_ManyTimes) {
  for (const int32_t workers : {1, 2, 3, 5}) {
    auto pool = MakePool(workers);
    std::vector<int> counts(static_cast<size_t>(workers));
    for (int round = 0; round < 500; ++round) {
      pool->Run([&](Worker& worker) { ++counts[static_cast<size_t>(worker.id())]; });
    }
    for (int count : counts) EXPECT_EQ(count, 500);
  }
}

// What a worker wrote before the barrier is what all read after it; with and without sleeping.
TEST(WorkerPool, Barrier_MakesWritesVisible) {
  for (const int32_t spin_us : {0, 50}) {
    constexpr int32_t kWorkers = 4;
    auto pool = MakePool(kWorkers, spin_us);
    std::array<int64_t, kWorkers> values{};
    std::atomic<int> wrong{0};
    pool->Run([&](Worker& worker) {
      for (int64_t round = 1; round <= 300; ++round) {
        values[static_cast<size_t>(worker.id())] = round * (worker.id() + 1);
        worker.Barrier();
        const int64_t sum = std::accumulate(values.begin(), values.end(), int64_t{0});
        if (sum != round * (kWorkers * (kWorkers + 1) / 2)) ++wrong;
        worker.Barrier();
      }
    });
    EXPECT_EQ(wrong.load(), 0) << "spin " << spin_us << " us";
  }
}

TEST(WorkerPool, Share_CoversEverythingOnce_InOrder) {
  for (const int32_t workers : {1, 2, 3, 7}) {
    for (const int32_t n : {0, 1, 2, 6, 7, 8, 1000, 2'000'000'000}) {
      int32_t next = 0;
      for (int32_t id = 0; id < workers; ++id) {
        const Range range = Worker(nullptr, id, workers).Share(n);
        EXPECT_EQ(range.begin, next);
        EXPECT_LE(range.begin, range.end);
        EXPECT_LE(range.end - range.begin, n / workers + 1);
        next = range.end;
      }
      EXPECT_EQ(next, n);
    }
  }
}

TEST(WorkerPool, Idle_UsesNoCpu) {
  auto pool = MakePool(4);
  pool->Run([](Worker&) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  timespec before{}, after{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  const double used_ms =
      static_cast<double>(after.tv_sec - before.tv_sec) * 1e3 + static_cast<double>(after.tv_nsec - before.tv_nsec) * 1e-6;
  EXPECT_LT(used_ms, 2.0);
}

TEST(WorkerPool, TooManyOrNoWorkers_AreRefusedByName) {
  WorkerPoolOptions options;
  options.cpus.clear();
  EXPECT_EQ(WorkerPool::Create(options).error().param, "num_threads");
  options.cpus.assign(100'000, -1);
  EXPECT_EQ(WorkerPool::Create(options).error().param, "num_threads");
}

}  // namespace
}  // namespace avocet::device
