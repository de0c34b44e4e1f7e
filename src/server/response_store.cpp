#include "server/response_store.h"

#include <utility>

#include "base/limits.h"

namespace avocet::server {

void ResponseStore::Put(const std::string& id, StoredResponse response) {
  const size_t bytes = response.body.size() + DumpJson(response.messages).size();
  const std::lock_guard lock(mutex_);
  if (const auto known = by_id_.find(id); known != by_id_.end()) {
    bytes_ -= known->second->bytes;
    entries_.erase(known->second);
    by_id_.erase(known);
  }
  entries_.push_front({id, std::move(response), bytes});
  by_id_[id] = entries_.begin();
  bytes_ += bytes;
  while (entries_.size() > limits::kStoredResponsesMax || bytes_ > limits::kStoredResponseBytesMax) {
    bytes_ -= entries_.back().bytes;
    by_id_.erase(entries_.back().id);
    entries_.pop_back();
  }
}

std::optional<StoredResponse> ResponseStore::Get(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto known = by_id_.find(id);
  if (known == by_id_.end()) return std::nullopt;
  return known->second->response;
}

}  // namespace avocet::server
