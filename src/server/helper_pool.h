// A few threads for work that would hold up an io thread: parsing, rendering and tokenising long requests, writing long answers.
// The queue is bounded; jobs are independent and run in the order of arrival. Any thread may post.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace avocet::server {

class HelperPool {
 public:
  explicit HelperPool(int32_t num_threads);
  ~HelperPool();  // Stop

  using Job = std::move_only_function<void()>;
  // False: the queue is full (limits::kHelperJobsMax) or the pool has stopped.
  bool Post(Job job);
  // Finishes running jobs, drops waiting ones, joins. Idempotent.
  void Stop();

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable wakeup_;
  std::deque<Job> jobs_;
  bool is_stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace avocet::server
