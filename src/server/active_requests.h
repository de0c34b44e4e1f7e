// The generations in flight on one io thread: submits them to the engine, turns its events into answers, and cancels them when the
// peer goes away, a stop string is found or the server drains. A request with n answers or several prompts is one generation of many
// sequences, which end together.
// Owner: its io thread, but for num_active. Ids: the io thread is id % num_io_threads, so that events find their way without a table.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/request.h"
#include "server/answer.h"
#include "server/backend.h"
#include "server/helper_pool.h"
#include "server/http_server.h"
#include "server/metrics.h"
#include "server/prepared_request.h"
#include "server/server_options.h"
#include "tokenizer/tokenizer.h"

namespace avocet::server {

// What every io thread works with; all of it is safe to use from any thread.
struct ServerParts {
  const ServerOptions* options = nullptr;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  CompletionBackend* backend = nullptr;
  Metrics* metrics = nullptr;
  HelperPool* helpers = nullptr;
  ResponseStore* responses = nullptr;  // null: responses are not kept
};

class Generation;

class ActiveRequests {
 public:
  ActiveRequests(const ServerParts& parts, int32_t io_thread, int32_t num_io_threads);
  ~ActiveRequests();

  // Submits the request and owns its answer from here on.
  void Start(std::unique_ptr<PreparedRequest> request, std::string request_id, engine::Clock::time_point arrival,
             std::shared_ptr<HttpExchange> exchange);
  void OnEvents(std::span<engine::RequestEvent> events);
  // The engine ends them; answers say "abort".
  void CancelAll();
  // Forgets what is left once the io threads have ended; connections go with it.
  void Clear();

  int32_t num_active() const { return num_active_; }  // any thread

 private:
  friend class Generation;
  struct Place {
    Generation* generation;
    size_t choice;
  };

  engine::RequestId Register(Generation* generation, size_t choice);
  void Unregister(engine::RequestId id) { places_.erase(id); }
  void Remove(uint64_t serial);

  const ServerParts& parts_;
  engine::RequestId next_id_;
  engine::RequestId id_stride_;
  std::unordered_map<engine::RequestId, Place> places_;
  std::unordered_map<uint64_t, std::unique_ptr<Generation>> generations_;  // by serial number: an address may come back
  uint64_t next_serial_ = 0;
  std::atomic<int32_t> num_active_{0};
};

}  // namespace avocet::server
