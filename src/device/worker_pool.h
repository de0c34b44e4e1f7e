// The pinned workers of a rank. A step is SPMD: Run(fn) makes every worker execute the same function; worker 0 is the caller.
// Inside, each worker takes its Share() of an op and Barrier() stands where data crosses workers. Workers spin only inside a
// step, and only for tens of microseconds before they sleep; between steps they sleep (an idle server uses no CPU).
// Owner: the engine thread. No other thread may call Run.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/function_ref.h"

namespace avocet::device {

struct Range {
  int32_t begin = 0;
  int32_t end = 0;
};

class WorkerPool;

// One worker inside Run(). Lives on the worker's stack; never kept.
class Worker {
 public:
  Worker(WorkerPool* pool, int32_t id, int32_t count) : pool_(pool), id_(id), count_(count) {}

  int32_t id() const { return id_; }
  int32_t count() const { return count_; }

  // This worker's contiguous part of [0, n); parts differ by at most one and are the same in every step.
  Range Share(int32_t n) const {
    const int64_t wide = n;
    return {static_cast<int32_t>(wide * id_ / count_), static_cast<int32_t>(wide * (id_ + 1) / count_)};
  }

  // Returns when all workers have called it; what they wrote before is visible after.
  void Barrier();

 private:
  WorkerPool* pool_;
  int32_t id_;
  int32_t count_;
};

struct WorkerPoolOptions {
  // One logical CPU per worker; worker 0's entry applies to the thread that calls Run. -1 leaves a worker unpinned.
  std::vector<int32_t> cpus = {-1};
  // How long a waiting worker spins before it sleeps.
  int32_t spin_us = 50;
};

class WorkerPool {
 public:
  static Result<std::unique_ptr<WorkerPool>> Create(const WorkerPoolOptions& options);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int32_t num_workers() const { return num_workers_; }

  // Every worker runs fn once; returns when all have returned.
  void Run(FunctionRef<void(Worker&)> fn);

 private:
  friend class Worker;
  struct State;
  explicit WorkerPool(const WorkerPoolOptions& options);

  std::unique_ptr<State> state_;
  int32_t num_workers_ = 1;
};

}  // namespace avocet::device
