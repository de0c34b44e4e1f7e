#include "server/server.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/limits.h"
#include "base/log.h"
#include "server/active_requests.h"
#include "server/api_handler.h"
#include "server/helper_pool.h"
#include "server/http_server.h"
#include "server/metrics.h"
#include "server/prepared_request.h"

namespace avocet::server {

namespace {

constexpr auto kDrainPoll = std::chrono::milliseconds(10);
// After the deadline: two steps for the engine to end what was cancelled, and the answers' way out.
constexpr auto kCancelGrace = std::chrono::seconds(2);

// Events handled before the io thread looks at its sockets again: what was written must get a chance to leave.
constexpr size_t kEventsPerTurn = 128;

// Hands the engine's events to the io threads that own the requests. The engine thread only appends to lists. WAIT-1: it waits when an
// io thread has fallen behind by kInboxEventsMax events, which is a wait for that thread's own work and never for a client.
class EventRouter final : public engine::EventSink {
 public:
  EventRouter(HttpServer& http, std::vector<std::unique_ptr<ActiveRequests>>& active)
      : http_(http), active_(active), inboxes_(active.size()) {}

  void OnEvents(std::span<engine::RequestEvent> events) override {
    for (size_t io = 0; io < inboxes_.size(); ++io) {
      Inbox& inbox = inboxes_[io];
      std::unique_lock lock(inbox.mutex);
      inbox.has_room.wait(lock, [&] { return inbox.events.size() < limits::kInboxEventsMax || inbox.is_closed; });
      if (inbox.is_closed) continue;
      for (engine::RequestEvent& event : events) {
        if (event.id % inboxes_.size() == io) inbox.events.push_back(std::move(event));
      }
      const bool must_schedule = !inbox.events.empty() && !std::exchange(inbox.is_scheduled, true);
      lock.unlock();
      if (must_schedule) Schedule(io);
    }
  }

  // Events are dropped from here on: no io thread will read them.
  void Close() {
    for (Inbox& inbox : inboxes_) {
      {
        const std::lock_guard lock(inbox.mutex);
        inbox.is_closed = true;
      }
      inbox.has_room.notify_all();
    }
  }

 private:
  struct Inbox {
    std::mutex mutex;
    std::condition_variable has_room;
    std::vector<engine::RequestEvent> events;
    bool is_scheduled = false;  // Deliver will run
    bool is_closed = false;
    // The io thread's own:
    std::vector<engine::RequestEvent> taken;
    size_t num_done = 0;  // of `taken`
  };

  void Schedule(size_t io) {
    http_.Post(static_cast<int32_t>(io), [this, io] { Deliver(io); });
  }

  void Deliver(size_t io) {
    Inbox& inbox = inboxes_[io];
    if (inbox.num_done == inbox.taken.size()) {
      inbox.taken.clear();
      inbox.num_done = 0;
      {
        const std::lock_guard lock(inbox.mutex);
        inbox.taken.swap(inbox.events);
        if (inbox.taken.empty()) inbox.is_scheduled = false;
      }
      inbox.has_room.notify_one();
    }
    if (inbox.taken.empty()) return;
    const size_t num = std::min(kEventsPerTurn, inbox.taken.size() - inbox.num_done);
    active_[io]->OnEvents(std::span(inbox.taken).subspan(inbox.num_done, num));
    inbox.num_done += num;
    Schedule(io);
  }

  HttpServer& http_;
  std::vector<std::unique_ptr<ActiveRequests>>& active_;
  std::vector<Inbox> inboxes_;
};

Result<void> CheckOptions(const ServerOptions& options) {
  if (options.served_model_names.empty()) return Fail(Errc::kInvalidArgument, "no served model name (--served-model-name)");
  if (options.max_model_len < 2) {
    return Fail(Errc::kInvalidArgument, "max_model_len is {}, at least 2 tokens are needed (--max-model-len)", options.max_model_len);
  }
  if (options.vocab_size < 1) return Fail(Errc::kInvalidArgument, "the vocabulary has {} tokens", options.vocab_size);
  if (!options.chat_template_kwargs.is_object()) {
    return Fail(Errc::kInvalidArgument, "--default-chat-template-kwargs is not a JSON object");
  }
  return {};
}

}  // namespace

struct Server::Impl {
  Impl(ServerOptions options_in, std::shared_ptr<const tokenizer::Tokenizer> tokenizer_in,
       std::optional<tokenizer::ChatTemplate> chat_template)
      : options(std::move(options_in)),
        preparer(options, tokenizer_in, std::move(chat_template), options.store_responses ? &responses : nullptr),
        metrics(options) {
    parts.options = &options;
    parts.tokenizer = std::move(tokenizer_in);
    parts.metrics = &metrics;
    if (options.store_responses) parts.responses = &responses;
  }

  int32_t num_active() const {
    int32_t num = 0;
    for (const auto& requests : active) num += requests->num_active();
    return num;
  }
  void CancelAll() {
    for (size_t io = 0; io < active.size(); ++io) http->Post(static_cast<int32_t>(io), [this, io] { active[io]->CancelAll(); });
  }
  // True once nothing is in flight.
  bool WaitIdle(Clock::time_point deadline) const {
    while (http->num_busy() > 0 || num_active() > 0) {
      if (Clock::now() >= deadline) return false;
      std::this_thread::sleep_for(kDrainPoll);
    }
    return true;
  }

  ServerOptions options;
  ServerParts parts;
  ResponseStore responses;
  Preparer preparer;
  Metrics metrics;
  StatsLine stats_line;
  std::unique_ptr<CompletionBackend> backend;
  std::vector<std::unique_ptr<ActiveRequests>> active;  // per io thread
  std::unique_ptr<ApiHandler> handler;
  std::unique_ptr<HttpServer> http;
  std::unique_ptr<EventRouter> router;
  std::unique_ptr<HelperPool> helpers;
  bool is_stopped = false;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() {
  Stop();
  impl_->backend = nullptr;  // before the sink that it may still talk to
}

Result<std::unique_ptr<Server>> Server::Create(ServerOptions options, std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                                               std::optional<tokenizer::ChatTemplate> chat_template) {
  AVOCET_TRY_VOID(CheckOptions(options));
  auto impl = std::make_unique<Impl>(std::move(options), std::move(tokenizer), std::move(chat_template));
  const int32_t num_io_threads = impl->options.num_io_threads;
  for (int32_t io = 0; io < num_io_threads; ++io) impl->active.push_back(std::make_unique<ActiveRequests>(impl->parts, io, num_io_threads));
  impl->handler = std::make_unique<ApiHandler>(impl->parts, impl->preparer, impl->active);
  HttpHooks hooks{.handle = [handler = impl->handler.get()](
                                HttpRequest request,
                                std::shared_ptr<HttpExchange> exchange) { handler->Handle(std::move(request), std::move(exchange)); },
                  .answered = [handler = impl->handler.get()](const HttpRequest& head, int status) { handler->Answered(head, status); }};
  AVOCET_TRY(impl->http, HttpServer::Create(impl->options.listen, impl->options.http, num_io_threads, std::move(hooks)));
  impl->router = std::make_unique<EventRouter>(*impl->http, impl->active);
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

engine::EventSink& Server::sink() {
  return *impl_->router;
}

void Server::Attach(std::unique_ptr<CompletionBackend> backend) {
  CHECK(impl_->backend == nullptr, "the server has an engine already");
  impl_->backend = std::move(backend);
  impl_->parts.backend = impl_->backend.get();
}

Result<void> Server::Start() {
  CHECK(impl_->backend != nullptr, "Attach comes before Start");
  Impl& impl = *impl_;
  impl.helpers = std::make_unique<HelperPool>(impl.options.num_helper_threads);
  impl.parts.helpers = impl.helpers.get();
  if (!impl.options.api_keys.empty()) LogInfo("paths that need no key: {}", impl.handler->OpenRoutes());
  if (impl.options.log_stats && impl.options.log_stats_interval.count() > 0) {
    impl.stats_line.Next(impl.backend->stats(), Clock::now());  // rates count from here
    impl.http->RunEvery(impl.options.log_stats_interval, [&impl] {
      if (const auto line = impl.stats_line.Next(impl.backend->stats(), Clock::now())) LogInfo("{}", *line);
    });
  }
  return impl.http->Start();
}

uint16_t Server::port() const {
  return impl_->http->port();
}

std::string Server::url() const {
  return impl_->http->url();
}

void Server::Drain(std::chrono::steady_clock::time_point deadline) {
  impl_->handler->StartDraining();
  impl_->http->StopAccepting();
  if (impl_->WaitIdle(deadline)) return;
  LogWarning("{} requests did not finish before the shutdown deadline; cancelled", impl_->num_active());
  impl_->CancelAll();
  impl_->WaitIdle(Clock::now() + kCancelGrace);
}

void Server::Stop() {
  if (std::exchange(impl_->is_stopped, true)) return;
  impl_->handler->StartDraining();
  if (impl_->helpers != nullptr) {
    impl_->CancelAll();
    impl_->helpers->Stop();
  }
  impl_->http->Stop();
  impl_->router->Close();
  for (auto& requests : impl_->active) requests->Clear();
}

}  // namespace avocet::server
