#include "server/http_server.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <variant>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>

#include "base/check.h"
#include "base/log.h"
#include "server/api_error.h"
#include "server/http_session.h"

namespace avocet::server {

namespace asio = boost::asio;
using asio::ip::tcp;
using internal::ErrorCode;
using internal::HttpSession;
using internal::HttpShared;
using internal::IoThread;
using LocalProtocol = asio::local::stream_protocol;

namespace {

constexpr auto kTlsPoll = std::chrono::seconds(1);
constexpr auto kAcceptPause = std::chrono::milliseconds(100);  // after the system refused one, e.g. for want of descriptors

bool EqualsIgnoringCase(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, [](char x, char y) { return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y)); });
}

std::string HostAndPort(const tcp::endpoint& endpoint) {
  asio::ip::address address = endpoint.address();
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    address = asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
  }
  return fmt::format(fmt::runtime(address.is_v6() ? "[{}]:{}" : "{}:{}"), address.to_string(), endpoint.port());
}

// A socket file whose server is gone is removed; a live one, or any other file, is not.
Result<void> RemoveStaleSocket(const std::string& path) {
  struct stat info{};
  if (lstat(path.c_str(), &info) != 0) return {};
  if (!S_ISSOCK(info.st_mode)) return Fail(Errc::kIo, "--uds {}: the file exists and is not a socket", path);
  asio::io_context context;
  LocalProtocol::socket probe(context);
  ErrorCode error;
  probe.connect(LocalProtocol::endpoint(path), error);
  if (!error) return Fail(Errc::kIo, "--uds {}: another server listens there", path);
  if (unlink(path.c_str()) != 0) return Fail(Errc::kIo, "--uds {}: cannot remove the old socket: {}", path, std::strerror(errno));
  return {};
}

// The fence of the io threads: what a handler throws (no memory) costs its connection, not the process.
void RunUntilStopped(IoThread& io) {
  while (!io.context.stopped()) {
    try {
      io.context.run();
    } catch (const std::exception& error) {
      LogError("io thread {}: {}", io.index, error.what());
    }
  }
}

}  // namespace

std::string_view HttpRequest::Header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (EqualsIgnoringCase(key, name)) return value;
  }
  return {};
}

struct HttpServer::Impl {
  Impl(const HttpLimits& limits, int32_t num_io_threads, HttpHooks hooks) {
    shared.limits = limits;
    shared.hooks = std::move(hooks);
    for (int32_t i = 0; i < num_io_threads; ++i) threads.push_back(std::make_unique<IoThread>(i));
  }

  template <typename Protocol>
  using Acceptor = asio::basic_socket_acceptor<Protocol>;

  asio::io_context& first_context() { return threads.front()->context; }

  Result<void> BindTcp(const ListenOptions& listen);
  Result<void> BindLocal(const std::string& path);
  template <typename Protocol>
  void Accept(Acceptor<Protocol>& acceptor);
  template <typename Protocol>
  void OnAccepted(Acceptor<Protocol>& acceptor, IoThread& io, ErrorCode error, typename Protocol::socket socket);
  void Admit(IoThread& io, internal::Socket socket, std::string peer);
  void Tick();
  void WatchTlsFiles();

  HttpShared shared;
  std::vector<std::unique_ptr<IoThread>> threads;
  std::vector<Acceptor<tcp>> tcp_acceptors;
  std::optional<Acceptor<LocalProtocol>> local_acceptor;
  std::string uds;
  std::string url;
  uint16_t port = 0;
  size_t next_thread = 0;                            // io thread 0: gets the next connection
  std::optional<asio::steady_timer> accept_timer;    // io thread 0
  std::optional<asio::steady_timer> periodic_timer;  // io thread 0
  std::chrono::milliseconds period{};
  std::function<void()> periodic_task;
  TlsOptions tls;
  std::string tls_files_state;                  // as read last
  std::optional<asio::steady_timer> tls_timer;  // io thread 0
  bool is_started = false;
  bool is_stopped = false;
};

Result<void> HttpServer::Impl::BindTcp(const ListenOptions& listen) {
  std::vector<tcp::endpoint> endpoints;
  ErrorCode error;
  if (listen.host.empty()) {
    endpoints = {{tcp::v6(), listen.port}, {tcp::v4(), listen.port}};  // the second only where there is no IPv6
  } else {
    tcp::resolver resolver(first_context());
    const auto found = resolver.resolve(listen.host, std::to_string(listen.port), tcp::resolver::passive, error);
    if (error) return Fail(Errc::kInvalidArgument, "--host {}: {}", listen.host, error.message());
    for (const auto& entry : found) {
      if (std::ranges::find(endpoints, entry.endpoint()) == endpoints.end()) endpoints.push_back(entry.endpoint());
    }
  }
  for (tcp::endpoint endpoint : endpoints) {
    if (port != 0) endpoint.port(port);  // all addresses of a name get one port
    Acceptor<tcp> acceptor(first_context());
    acceptor.open(endpoint.protocol(), error);
    if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
    if (!error && endpoint.address().is_v6()) acceptor.set_option(asio::ip::v6_only(!listen.host.empty() && listen.host != "::"), error);
    if (!error) acceptor.bind(endpoint, error);
    if (error) continue;
    port = acceptor.local_endpoint().port();
    tcp_acceptors.push_back(std::move(acceptor));
    if (listen.host.empty()) break;
  }
  if (tcp_acceptors.empty()) {
    return Fail(Errc::kIo, "cannot listen on {} port {}: {}; choose another --port or --host",
                listen.host.empty() ? "any address" : listen.host, listen.port, error.message());
  }
  const bool needs_brackets = listen.host.find(':') != std::string::npos;
  url = fmt::format("{}://{}{}{}:{}", shared.tls != nullptr ? "https" : "http", needs_brackets ? "[" : "",
                    listen.host.empty() ? "0.0.0.0" : listen.host, needs_brackets ? "]" : "", port);
  return {};
}

Result<void> HttpServer::Impl::BindLocal(const std::string& path) {
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    return Fail(Errc::kInvalidArgument, "--uds {}: the path has {} bytes, at most {}", path, path.size(),
                sizeof(sockaddr_un::sun_path) - 1);
  }
  if (auto removed = RemoveStaleSocket(path); !removed) return removed;
  ErrorCode error;
  local_acceptor.emplace(first_context());
  local_acceptor->open(LocalProtocol(), error);
  if (!error) local_acceptor->bind(LocalProtocol::endpoint(path), error);
  if (error) return Fail(Errc::kIo, "--uds {}: {}", path, error.message());
  uds = path;
  url = "unix:" + path;
  return {};
}

template <typename Protocol>
void HttpServer::Impl::Accept(Acceptor<Protocol>& acceptor) {
  if (!acceptor.is_open()) return;
  IoThread& io = *threads[next_thread];
  next_thread = (next_thread + 1) % threads.size();
  acceptor.async_accept(io.context, [this, &acceptor, &io](ErrorCode error, typename Protocol::socket socket) {
    OnAccepted<Protocol>(acceptor, io, error, std::move(socket));
  });
}

template <typename Protocol>
void HttpServer::Impl::OnAccepted(Acceptor<Protocol>& acceptor, IoThread& io, ErrorCode error, typename Protocol::socket socket) {
  if (!acceptor.is_open()) return;
  if (error == asio::error::connection_aborted || error == asio::error::interrupted) {
    Accept<Protocol>(acceptor);
    return;
  }
  if (error) {
    LogWarning("cannot accept a connection: {}; trying again", error.message());
    accept_timer->expires_after(kAcceptPause);
    accept_timer->async_wait([this, &acceptor](ErrorCode stopped) {
      if (!stopped) Accept<Protocol>(acceptor);
    });
    return;
  }
  std::string peer = "unix";
  if constexpr (std::is_same_v<Protocol, tcp>) {
    ErrorCode ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    const tcp::endpoint endpoint = socket.remote_endpoint(ignored);
    peer = HostAndPort(endpoint);
  }
  Admit(io, internal::Socket(std::move(socket)), std::move(peer));
  Accept<Protocol>(acceptor);
}

void HttpServer::Impl::Admit(IoThread& io, internal::Socket socket, std::string peer) {
  if (shared.num_connections >= shared.limits.connections_max) {
    const std::string body = ErrorBody({503, {}, fmt::format("{} connections, at most that many", shared.limits.connections_max), {}});
    const std::string answer = fmt::format(
        "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{}",
        body.size(), body);
    ErrorCode ignored;
    if (shared.tls != nullptr) return;  // nobody could read it
    socket.non_blocking(true, ignored);
    socket.send(asio::buffer(answer), 0, ignored);
    return;
  }
  // The socket belongs to the io thread's context; the session is made there.
  asio::post(io.context, [this, &io, socket = std::move(socket), peer = std::move(peer), context = shared.tls]() mutable {
    std::make_shared<HttpSession>(io, shared, std::move(socket), std::move(peer), std::move(context))->Start();
  });
}

void HttpServer::Impl::Tick() {
  periodic_timer->expires_after(period);
  periodic_timer->async_wait([this](ErrorCode stopped) {
    if (stopped) return;
    periodic_task();
    Tick();
  });
}

// New connections get the new certificate; files that cannot be read change nothing.
void HttpServer::Impl::WatchTlsFiles() {
  tls_timer->expires_after(kTlsPoll);
  tls_timer->async_wait([this](ErrorCode stopped) {
    if (stopped) return;
    if (std::string state = internal::TlsFilesState(tls); state != tls_files_state) {
      tls_files_state = std::move(state);
      Result<internal::TlsContext> context = internal::MakeTlsContext(tls);
      if (context.has_value()) {
        shared.tls = *std::move(context);
        LogInfo("the certificate was read again");
      } else {
        LogWarning("the old certificate is kept: {}", context.error().message);
      }
    }
    WatchTlsFiles();
  });
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() {
  Stop();
}

Result<std::unique_ptr<HttpServer>> HttpServer::Create(const ListenOptions& listen, const HttpLimits& limits, int32_t num_io_threads,
                                                       HttpHooks hooks) {
  if (num_io_threads < 1) return Fail(Errc::kInvalidArgument, "{} io threads, at least 1 is needed", num_io_threads);
  auto impl = std::make_unique<Impl>(limits, num_io_threads, std::move(hooks));
  if (!listen.tls.certfile.empty()) {
    impl->tls = listen.tls;
    impl->tls_files_state = internal::TlsFilesState(listen.tls);
    AVOCET_TRY(impl->shared.tls, internal::MakeTlsContext(listen.tls));
    if (listen.tls.refresh) impl->tls_timer.emplace(impl->first_context());
  }
  if (listen.uds.empty()) {
    AVOCET_TRY_VOID(impl->BindTcp(listen));
  } else {
    AVOCET_TRY_VOID(impl->BindLocal(listen.uds));
  }
  impl->accept_timer.emplace(impl->first_context());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

Result<void> HttpServer::Start() {
  CHECK(!impl_->is_started, "the server was started before");
  ErrorCode error;
  for (auto& acceptor : impl_->tcp_acceptors) {
    acceptor.listen(asio::socket_base::max_listen_connections, error);
    if (error) return Fail(Errc::kIo, "cannot listen on port {}: {}; choose another --port", impl_->port, error.message());
    impl_->Accept<tcp>(acceptor);
  }
  if (impl_->local_acceptor.has_value()) {
    impl_->local_acceptor->listen(asio::socket_base::max_listen_connections, error);
    if (error) return Fail(Errc::kIo, "cannot listen on {}: {}", impl_->uds, error.message());
    impl_->Accept<LocalProtocol>(*impl_->local_acceptor);
  }
  if (impl_->periodic_task) impl_->Tick();
  if (impl_->tls_timer.has_value()) impl_->WatchTlsFiles();
  impl_->is_started = true;
  for (auto& io : impl_->threads) io->thread = std::thread([io = io.get()] { RunUntilStopped(*io); });
  return {};
}

uint16_t HttpServer::port() const {
  return impl_->port;
}

std::string HttpServer::url() const {
  return impl_->url;
}

int32_t HttpServer::num_io_threads() const {
  return static_cast<int32_t>(impl_->threads.size());
}

void HttpServer::Post(int32_t io_thread, Task task) {
  asio::post(impl_->threads[static_cast<size_t>(io_thread)]->context, std::move(task));
}

void HttpServer::RunEvery(std::chrono::milliseconds period, std::function<void()> task) {
  impl_->period = period;
  impl_->periodic_task = std::move(task);
  impl_->periodic_timer.emplace(impl_->first_context());
}

void HttpServer::StopAccepting() {
  if (impl_->shared.is_draining.exchange(true)) return;
  Post(0, [impl = impl_.get()] {
    ErrorCode ignored;
    impl->accept_timer->cancel();
    for (auto& acceptor : impl->tcp_acceptors) acceptor.close(ignored);
    if (impl->local_acceptor.has_value()) impl->local_acceptor->close(ignored);
  });
  for (auto& io : impl_->threads) {
    Post(io->index, [io = io.get()] {
      const std::vector<HttpSession*> sessions(io->sessions.begin(), io->sessions.end());
      for (HttpSession* session : sessions) session->CloseIfIdle();
    });
  }
}

int32_t HttpServer::num_busy() const {
  return impl_->shared.num_busy;
}

void HttpServer::Stop() {
  if (std::exchange(impl_->is_stopped, true)) return;
  if (impl_->is_started) {
    StopAccepting();
    for (auto& io : impl_->threads) {
      Post(io->index, [io = io.get()] {
        const std::vector<HttpSession*> sessions(io->sessions.begin(), io->sessions.end());
        for (HttpSession* session : sessions) session->Close();
        io->context.stop();
      });
    }
    for (auto& io : impl_->threads) io->thread.join();
  }
  if (!impl_->uds.empty()) unlink(impl_->uds.c_str());
}

}  // namespace avocet::server
