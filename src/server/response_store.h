// Responses that later requests may refer to (/v1/responses with VLLM_ENABLE_RESPONSES_API_STORE): the body, and the conversation that it
// ends. Bounded in number and bytes; the oldest go first. Any thread.
#pragma once

#include <cstddef>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "server/json_input.h"

namespace avocet::server {

struct StoredResponse {
  std::string body;
  Json messages;  // of the chat form, the answer included
};

class ResponseStore {
 public:
  void Put(const std::string& id, StoredResponse response);
  std::optional<StoredResponse> Get(const std::string& id) const;

 private:
  struct Entry {
    std::string id;
    StoredResponse response;
    size_t bytes;
  };

  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // the newest first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_id_;
  size_t bytes_ = 0;
};

}  // namespace avocet::server
