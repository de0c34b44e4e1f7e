// The HTTP server: OpenAI-compatible routes in front of an engine. Text, JSON and sockets; no model words.
// The order of a life (cli/serve):
//   auto server = Server::Create(options, tokenizer, chat_template);   // binds the address: a taken port fails before weights are read
//   auto engine = Engine::Create(engine_options, runner, server->sink());
//   server->Attach(std::make_unique<EngineBackend>(*engine));  engine->Start();  server->Start();   // from here clients are served
//   ... a signal ...
//   server->Drain(deadline);  engine->Drain(deadline);  server->Stop();
//   destroy the engine, then the server (the sink outlives the engine).
// Public functions belong to the main thread; the sink to the engine thread; all else happens on the server's own threads.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "engine/engine.h"
#include "server/backend.h"
#include "server/server_options.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace avocet::server {

class Server {
 public:
  // tokenizer: null serves token ids only. chat_template: absent refuses conversations.
  static Result<std::unique_ptr<Server>> Create(ServerOptions options, std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                                                std::optional<tokenizer::ChatTemplate> chat_template);
  ~Server();  // Stop

  engine::EventSink& sink();
  void Attach(std::unique_ptr<CompletionBackend> backend);  // once, before Start

  // Listens and returns. Until then connections are refused.
  Result<void> Start();
  uint16_t port() const;    // the bound port; 0 with a Unix socket
  std::string url() const;  // "http://0.0.0.0:8000" or "unix:/path", for the log

  // Refuses new connections and requests, lets the running ones finish; at `deadline` the rest is cancelled and answered.
  void Drain(std::chrono::steady_clock::time_point deadline);
  // Cancels what runs, closes every connection, joins the threads. The backend is not called afterwards. Idempotent.
  void Stop();

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace avocet::server
