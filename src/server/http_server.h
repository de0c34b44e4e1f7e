// HTTP/1.1 over TCP or a Unix socket: sessions with deadlines, size limits, keep-alive, pipelining in order, chunked streams with
// back-pressure, and prompt notice of a peer that leaves. Knows nothing of the API behind it. Nothing a peer sends or withholds costs
// more than its own session.
// Each io thread owns its sessions; a handler runs on the io thread of its session and must not block. Boost stays in the .cpp.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "server/server_options.h"

namespace avocet::server {

using Clock = std::chrono::steady_clock;
using Task = std::move_only_function<void()>;

// Bytes of a body against the sum over all connections; given back when it is destroyed.
class BodyCharge {
 public:
  BodyCharge() = default;
  explicit BodyCharge(std::atomic<size_t>& total) : total_(&total) {}
  BodyCharge(BodyCharge&& other) noexcept : total_(other.total_), bytes_(std::exchange(other.bytes_, 0)) {}
  BodyCharge& operator=(BodyCharge&& other) noexcept {
    std::swap(total_, other.total_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~BodyCharge() {
    if (total_ != nullptr) *total_ -= bytes_;
  }
  // The sum over all connections afterwards.
  size_t Add(size_t bytes) {
    bytes_ += bytes;
    return *total_ += bytes;
  }

 private:
  std::atomic<size_t>* total_ = nullptr;
  size_t bytes_ = 0;
};

struct HttpRequest {
  std::string method;
  std::string path;  // without the query
  std::string query;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  std::string peer;  // "127.0.0.1:50000", for the log
  Clock::time_point arrival;
  BodyCharge charge;

  // The first header of this name (any case); empty if there is none.
  std::string_view Header(std::string_view name) const;
};

// The answer to one request. All but Post belong to the io thread; after the answer, or once the peer has gone, calls do nothing.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  virtual int32_t io_thread() const = 0;
  // Any thread: runs the task on the io thread.
  virtual void Post(Task task) = 0;

  virtual bool is_open() const = 0;  // neither answered nor abandoned
  virtual void AddHeader(std::string name, std::string value) = 0;
  virtual void Respond(int status, std::string_view content_type, std::string body) = 0;
  virtual void BeginStream(std::string_view content_type) = 0;  // status 200
  virtual void Write(std::string bytes) = 0;
  virtual void EndStream() = 0;
  // Called once if the peer goes away, or reads too slowly, before the answer is complete.
  virtual void OnPeerGone(Task task) = 0;
};

struct HttpHooks {
  std::function<void(HttpRequest, std::shared_ptr<HttpExchange>)> handle;
  // Once per answer, when its status is known; also for requests that never reached `handle` (their path may be empty).
  std::function<void(const HttpRequest& head, int status)> answered;
};

class HttpServer {
 public:
  // Binds the address; listens with Start.
  static Result<std::unique_ptr<HttpServer>> Create(const ListenOptions& listen, const HttpLimits& limits, int32_t num_io_threads,
                                                    HttpHooks hooks);
  ~HttpServer();

  Result<void> Start();
  uint16_t port() const;
  std::string url() const;
  int32_t num_io_threads() const;

  // Any thread: runs the task on an io thread. Dropped after Stop.
  void Post(int32_t io_thread, Task task);
  // Runs `task` on io thread 0 every `period`, until Stop. Once, before Start.
  void RunEvery(std::chrono::milliseconds period, std::function<void()> task);

  // No new connections; idle ones are closed, the others after the answer that they are waiting for.
  void StopAccepting();
  // Requests received and not completely answered.
  int32_t num_busy() const;
  // Closes everything and joins the threads. Idempotent.
  void Stop();

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace avocet::server
