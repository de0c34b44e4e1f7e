#include "server/server.h"

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
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

// Hands the engine's events to the io threads that own the requests. The engine thread only swaps lists.
class EventRouter final : public engine::EventSink {
 public:
  EventRouter(HttpServer& http, std::vector<std::unique_ptr<ActiveRequests>>& active)
      : http_(http), active_(active), inboxes_(active.size()) {}

  void OnEvents(std::span<engine::RequestEvent> events) override {
    for (size_t io = 0; io < inboxes_.size(); ++io) {
      Inbox& inbox = inboxes_[io];
      bool was_empty = false;
      bool has_news = false;
      {
        const std::lock_guard lock(inbox.mutex);
        was_empty = inbox.events.empty();
        for (engine::RequestEvent& event : events) {
          if (event.id % inboxes_.size() != io) continue;
          inbox.events.push_back(std::move(event));
          has_news = true;
        }
      }
      if (was_empty && has_news) http_.Post(static_cast<int32_t>(io), [this, io] { Deliver(io); });
    }
  }

 private:
  struct Inbox {
    std::mutex mutex;
    std::vector<engine::RequestEvent> events;  // one per live request and step at most; io threads never wait, so it stays short
  };

  void Deliver(size_t io) {
    std::vector<engine::RequestEvent> events;
    {
      const std::lock_guard lock(inboxes_[io].mutex);
      events.swap(inboxes_[io].events);
    }
    active_[io]->OnEvents(events);
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
      : options(std::move(options_in)), preparer(options, tokenizer_in, std::move(chat_template)), metrics(options) {
    parts.options = &options;
    parts.tokenizer = std::move(tokenizer_in);
    parts.metrics = &metrics;
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
  for (auto& requests : impl_->active) requests->Clear();
}

}  // namespace avocet::server
