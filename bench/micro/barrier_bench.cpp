// The workers' barrier: its cost between two empty pieces of work, and what a step of many barriers keeps of its rate when another busy
// process sits on every core. A barrier that spins for ever collapses there. Without memory traffic a third is what the scheduler gives: a
// worker that sleeps at a barrier gains no credit, and both must be on their cores; the goal, 40 % of the decode rate, is in
// bench/steps.py.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "device/topology.h"
#include "device/worker_pool.h"

namespace {

using namespace avocet;
using Clock = std::chrono::steady_clock;

double Seconds(Clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

double BarrierSeconds(device::WorkerPool& pool) {
  constexpr int kBarriers = 20'000;
  const Clock::time_point begin = Clock::now();
  pool.Run([](device::Worker& worker) {
    for (int i = 0; i < kBarriers; ++i) worker.Barrier();
  });
  return Seconds(Clock::now() - begin) / kBarriers;
}

// Steps per second of something like a decode step: 150 pieces of about 100 us with a barrier behind each.
double StepRate(device::WorkerPool& pool, double seconds) {
  int steps = 0;
  const Clock::time_point begin = Clock::now();
  while (Seconds(Clock::now() - begin) < seconds) {
    pool.Run([](device::Worker& worker) {
      for (int piece = 0; piece < 150; ++piece) {
        for (int i = 0; i < 180'000; ++i) __asm__ volatile("");
        worker.Barrier();
      }
    });
    ++steps;
  }
  return steps / Seconds(Clock::now() - begin);
}

class Hogs {
 public:
  explicit Hogs(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        for (;;) __asm__ volatile("");
      }
      children_.push_back(child);
    }
  }
  ~Hogs() {
    for (pid_t child : children_) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
  }
  Hogs(const Hogs&) = delete;
  Hogs& operator=(const Hogs&) = delete;

 private:
  std::vector<pid_t> children_;
};

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace

int main() {
  const auto topology = device::DetectTopology();
  CHECK(topology.has_value(), "{}", topology.error().message);
  device::WorkerPoolOptions options;
  options.cpus = device::ChooseWorkerCpus(*topology, 0, "").value();
  const auto pool = device::WorkerPool::Create(options).value();
  std::vector<double> barriers, ratios;
  for (int repetition = 0; repetition < 7; ++repetition) {
    barriers.push_back(BarrierSeconds(*pool));
    const double quiet = StepRate(*pool, 0.7);
    const Hogs hogs(options.cpus.size());
    ratios.push_back(StepRate(*pool, 1.5) / quiet);
  }
  const double barrier_us = Median(barriers) * 1e6;
  fmt::print(
      "{{\"what\": \"barrier\", \"value\": {:.3f}, \"unit\": \"us\", \"roof\": 1.0, \"ratio\": {:.3f}, \"goal\": 1.0, \"workers\": {}}}\n",
      barrier_us, 1.0 / barrier_us, options.cpus.size());
  fmt::print(
      "{{\"what\": \"step rate with a busy process on every core\", \"value\": {:.3f}, \"unit\": \"of the quiet rate\", \"roof\": 1.0, "
      "\"ratio\": {:.3f}, \"workers\": {}}}\n",
      Median(ratios), Median(ratios), options.cpus.size());
  return 0;
}
