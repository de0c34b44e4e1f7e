#include "server/active_requests.h"

#include <utility>

#include "base/check.h"
#include "server/generation.h"

namespace avocet::server {

ActiveRequests::ActiveRequests(const ServerParts& parts, int32_t io_thread, int32_t num_io_threads)
    : parts_(parts),
      next_id_(static_cast<engine::RequestId>(num_io_threads + io_thread)),
      id_stride_(static_cast<engine::RequestId>(num_io_threads)) {}

ActiveRequests::~ActiveRequests() = default;

engine::RequestId ActiveRequests::Register(Generation* generation, size_t choice) {
  const engine::RequestId id = next_id_;
  next_id_ += id_stride_;
  places_.emplace(id, Place{generation, choice});
  return id;
}

void ActiveRequests::Remove(uint64_t serial) {
  if (generations_.erase(serial) > 0) --num_active_;
}

void ActiveRequests::Start(std::unique_ptr<PreparedRequest> request, std::string request_id, engine::Clock::time_point arrival,
                           std::shared_ptr<HttpExchange> exchange) {
  const uint64_t serial = next_serial_++;
  auto generation = std::make_unique<Generation>(*this, serial, std::move(request), std::move(request_id), arrival, exchange);
  if (!generation->Submit()) return;
  generations_.emplace(serial, std::move(generation));
  ++num_active_;
  exchange->OnPeerGone([this, serial] {
    const auto found = generations_.find(serial);
    if (found == generations_.end()) return;
    found->second->Abandon();
    Remove(serial);
  });
}

void ActiveRequests::OnEvents(std::span<engine::RequestEvent> events) {
  const engine::Clock::time_point now = engine::Clock::now();
  for (engine::RequestEvent& event : events) {
    const auto place = places_.find(event.id);
    if (place == places_.end()) continue;  // cancelled here before this event came
    Generation* generation = place->second.generation;
    if (generation->OnEvent(place->second.choice, event, now)) Remove(generation->serial());
  }
}

void ActiveRequests::CancelAll() {
  for (auto& [serial, generation] : generations_) generation->CancelEngine();
}

void ActiveRequests::Clear() {
  places_.clear();
  generations_.clear();
  num_active_ = 0;
}

}  // namespace avocet::server
