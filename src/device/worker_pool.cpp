#include "device/worker_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/check.h"
#include "base/limits.h"

namespace avocet::device {
namespace {

// A 32-bit word that threads wait on: spin first, then sleep in the kernel. Wake() makes the system call only if somebody sleeps.
class alignas(64) WaitWord {
 public:
  uint32_t value() const { return value_.load(std::memory_order_acquire); }

  // Everything written before is visible to whoever sees the new value.
  void Advance(uint32_t value) {
    value_.store(value, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) Futex(FUTEX_WAKE_PRIVATE, INT32_MAX);
  }

  void WaitWhile(uint32_t old, int32_t spin_us) {
    if (SpinWhile(old, spin_us)) return;
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    while (value_.load(std::memory_order_seq_cst) == old) Futex(FUTEX_WAIT_PRIVATE, static_cast<int32_t>(old));
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }

 private:
  bool SpinWhile(uint32_t old, int32_t spin_us) const {
    // The clock costs more than a look at the word: read it once in 64 looks.
    constexpr int kLooksPerClock = 64;
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(spin_us);
    do {
      for (int i = 0; i < kLooksPerClock; ++i) {
        if (value() != old) return true;
        __builtin_ia32_pause();
      }
    } while (std::chrono::steady_clock::now() < end);
    return false;
  }

  void Futex(int operation, int32_t argument) {
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&value_), operation, argument, nullptr, nullptr, 0);
  }

  std::atomic<uint32_t> value_{0};
  std::atomic<int32_t> sleepers_{0};
};
static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "the kernel waits on the plain word");

void PinThisThread(int32_t cpu) {
  if (cpu < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cpu), &set);
  // A CPU that has gone away since start leaves the thread unpinned: slower, not wrong.
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

}  // namespace

struct WorkerPool::State {
  std::vector<int32_t> cpus;
  int32_t spin_us = 50;

  WaitWord step;  // advances when Run has work, or when stopping
  const FunctionRef<void(Worker&)>* work = nullptr;
  bool is_stopping = false;

  WaitWord barrier;  // advances when all workers have arrived
  alignas(64) std::atomic<int32_t> arrived{0};

  std::vector<std::thread> threads;
  std::thread::id caller;  // the thread that has been pinned as worker 0: the loader at start, then the engine
};

void Worker::Barrier() {
  if (count_ == 1) return;
  WorkerPool::State& state = *pool_->state_;
  const uint32_t round = state.barrier.value();
  if (state.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
    state.arrived.store(0, std::memory_order_relaxed);
    state.barrier.Advance(round + 1);
  } else {
    state.barrier.WaitWhile(round, state.spin_us);
  }
}

WorkerPool::WorkerPool(const WorkerPoolOptions& options)
    : state_(std::make_unique<State>()), num_workers_(static_cast<int32_t>(options.cpus.size())) {
  state_->cpus = options.cpus;
  state_->spin_us = options.spin_us;
  for (int32_t id = 1; id < num_workers_; ++id) {
    state_->threads.emplace_back([this, id] {
      PinThisThread(state_->cpus[static_cast<size_t>(id)]);
      Worker worker(this, id, num_workers_);
      for (uint32_t seen = 0;;) {
        state_->step.WaitWhile(seen, state_->spin_us);
        seen = state_->step.value();
        if (state_->is_stopping) return;
        (*state_->work)(worker);
        worker.Barrier();
      }
    });
  }
}

WorkerPool::~WorkerPool() {
  state_->is_stopping = true;
  state_->step.Advance(state_->step.value() + 1);
  for (std::thread& thread : state_->threads) thread.join();
}

Result<std::unique_ptr<WorkerPool>> WorkerPool::Create(const WorkerPoolOptions& options) {
  const size_t count = options.cpus.size();
  if (count < 1 || count > static_cast<size_t>(limits::kWorkersMax)) {
    return FailParam("num_threads", "{} compute threads are not possible; --num-threads takes 1 to {}", count, limits::kWorkersMax);
  }
  return std::unique_ptr<WorkerPool>(new WorkerPool(options));
}

void WorkerPool::Run(FunctionRef<void(Worker&)> fn) {
  if (const std::thread::id self = std::this_thread::get_id(); state_->caller != self) {
    PinThisThread(state_->cpus[0]);
    state_->caller = self;
  }
  Worker worker(this, 0, num_workers_);
  state_->work = &fn;
  state_->step.Advance(state_->step.value() + 1);
  fn(worker);
  worker.Barrier();
}

}  // namespace avocet::device
