#include "server/helper_pool.h"

#include <utility>

#include "base/limits.h"

namespace avocet::server {

HelperPool::HelperPool(int32_t num_threads) {
  for (int32_t i = 0; i < num_threads; ++i) threads_.emplace_back([this] { Run(); });
}

HelperPool::~HelperPool() {
  Stop();
}

bool HelperPool::Post(Job job) {
  {
    const std::lock_guard lock(mutex_);
    if (is_stopped_ || jobs_.size() >= limits::kHelperJobsMax) return false;
    jobs_.push_back(std::move(job));
  }
  wakeup_.notify_one();
  return true;
}

void HelperPool::Stop() {
  std::deque<Job> dropped;  // destroyed outside the lock
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    dropped.swap(jobs_);
  }
  wakeup_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void HelperPool::Run() {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      wakeup_.wait(lock, [this] { return is_stopped_ || !jobs_.empty(); });
      if (is_stopped_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

}  // namespace avocet::server
