// What the server needs of an engine. The real one is engine::Engine (EngineBackend); tests script another.
// Any thread may call it; nothing in it waits for a client. Events come back through the server's EventSink.
#pragma once

#include "base/error.h"
#include "engine/engine.h"
#include "engine/request.h"

namespace avocet::server {

class CompletionBackend {
 public:
  virtual ~CompletionBackend() = default;
  // After an ok the sink gets exactly one terminal event for this id, also when it is cancelled.
  virtual Result<void> Submit(engine::Request request) = 0;
  virtual void Cancel(engine::RequestId id) = 0;
  virtual engine::EngineStats stats() const = 0;
  virtual bool is_healthy() const = 0;
};

class EngineBackend final : public CompletionBackend {
 public:
  explicit EngineBackend(engine::Engine& engine) : engine_(engine) {}  // borrowed; it outlives the server's Stop

  Result<void> Submit(engine::Request request) override { return engine_.Submit(std::move(request)); }
  void Cancel(engine::RequestId id) override { engine_.Cancel(id); }
  engine::EngineStats stats() const override { return engine_.stats(); }
  bool is_healthy() const override { return engine_.is_healthy(); }

 private:
  engine::Engine& engine_;
};

}  // namespace avocet::server
