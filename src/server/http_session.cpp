#include "server/http_session.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>

#include <boost/asio/post.hpp>

#include "base/check.h"
#include "base/limits.h"
#include "base/log.h"
#include "server/api_error.h"

namespace avocet::server::internal {

namespace http = boost::beast::http;

namespace {

constexpr size_t kReadBytes = size_t{16} << 10;
constexpr size_t kPipelinedBytesMax = size_t{64} << 10;  // read ahead while an answer is awaited
constexpr size_t kWriteBuffersMax = 16;                  // pieces of one system call
constexpr size_t kJoinedBytesMax = size_t{64} << 10;
constexpr auto kLingerTime = std::chrono::seconds(2);
constexpr size_t kLingerBytesMax = size_t{1} << 20;

std::string DateLine() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 64> text{};
  const size_t num = std::strftime(text.data(), text.size(), "date: %a, %d %b %Y %H:%M:%S GMT\r\n", &utc);
  return std::string(text.data(), num);
}

}  // namespace

// The answer to one request. Outlives its session's interest: then it does nothing.
class HttpSession::Exchange final : public HttpExchange {
 public:
  Exchange(std::shared_ptr<HttpSession> session, HttpRequest head, bool is_chunked)
      : session_(std::move(session)), head_(std::move(head)), is_chunked_(is_chunked) {}

  int32_t io_thread() const override { return session_->io().index; }
  void Post(Task task) override { asio::post(session_->io().context, std::move(task)); }
  bool is_open() const override { return is_open_; }
  void AddHeader(std::string name, std::string value) override { extra_headers_ += name + ": " + value + "\r\n"; }

  void Respond(int status, std::string_view content_type, std::string body) override {
    if (!is_open_ || is_stream_) return;
    std::string bytes = session_->HeaderLines(status) + extra_headers_;
    if (!body.empty() || status != 204) {
      if (!content_type.empty()) bytes += fmt::format("content-type: {}\r\n", content_type);
      bytes += fmt::format("content-length: {}\r\n", body.size());
    }
    bytes += "\r\n";
    if (head_.method != "HEAD") bytes += body;
    Answered(status);
    session_->Send(std::move(bytes));
    session_->EndExchange();
  }

  void BeginStream(std::string_view content_type) override {
    if (!is_open_ || is_stream_) return;
    is_stream_ = true;
    if (!is_chunked_) session_->keeps_alive_ = false;  // HTTP/1.0: the end of the connection is the end of the stream
    std::string bytes = session_->HeaderLines(200) + extra_headers_;
    bytes += fmt::format("content-type: {}\r\ncache-control: no-cache\r\nx-accel-buffering: no\r\n{}\r\n", content_type,
                         is_chunked_ ? "transfer-encoding: chunked\r\n" : "");
    Answered(200);
    session_->Send(std::move(bytes));
  }

  void Write(std::string bytes) override {
    if (!is_open_ || !is_stream_ || bytes.empty()) return;
    if (is_chunked_) bytes = fmt::format("{:x}\r\n", bytes.size()) + bytes + "\r\n";
    session_->Send(std::move(bytes));
    const HttpLimits& limits = session_->shared_.limits;
    if (is_open_ && session_->queued_bytes_ > limits.queued_bytes_max) {
      LogWarning("{} does not read its stream: {} bytes queued, at most {}; closed", session_->peer_, session_->queued_bytes_,
                 limits.queued_bytes_max);
      session_->Close();
    }
  }

  void EndStream() override {
    if (!is_open_ || !is_stream_) return;
    if (is_chunked_) session_->Send("0\r\n\r\n");
    session_->EndExchange();
  }

  void OnPeerGone(Task task) override { on_peer_gone_ = std::move(task); }

  // Called by the session: nothing more will be sent.
  void Seal() {
    is_open_ = false;
    on_peer_gone_ = nullptr;
  }
  // Posted: the owner of the answer may be in the middle of writing it.
  void Abandon() {
    if (!is_open_) return;
    is_open_ = false;
    if (on_peer_gone_ != nullptr) Post(std::exchange(on_peer_gone_, nullptr));
  }

 private:
  void Answered(int status) {
    if (session_->shared_.hooks.answered) session_->shared_.hooks.answered(head_, status);
  }

  std::shared_ptr<HttpSession> session_;
  HttpRequest head_;  // without the body
  std::string extra_headers_;
  Task on_peer_gone_;
  bool is_chunked_;
  bool is_open_ = true;
  bool is_stream_ = false;
};

HttpSession::HttpSession(IoThread& io, HttpShared& shared, Socket socket, std::string peer, TlsContext tls)
    : io_(io),
      shared_(shared),
      socket_(std::move(socket)),
      tls_context_(std::move(tls)),
      peer_(std::move(peer)),
      buffer_(shared.limits.header_bytes_max + kPipelinedBytesMax + kReadBytes),
      timer_(io.context) {
  ++shared_.num_connections;
  io_.sessions.insert(this);
}

// May run on a helper thread that held the last reference: what the io thread owns was given back by Close.
HttpSession::~HttpSession() = default;

void HttpSession::Start() {
  PrepareForNext();
  SetDeadline(Clock::now() + shared_.limits.header_timeout);
  if (tls_context_ == nullptr) {
    BeginRead();
    return;
  }
  tls_stream_.emplace(socket_, *tls_context_);
  tls_stream_->async_handshake(asio::ssl::stream_base::server, [self = shared_from_this()](ErrorCode error) {
    if (self->state_ == State::kClosed) return;
    if (error) {
      LogDebug("{}: no TLS connection: {}", self->peer_, error.message());
      self->Close();
    } else {
      self->BeginRead();
    }
  });
}

void HttpSession::CloseIfIdle() {
  if (state_ == State::kIdle) Close();
}

void HttpSession::Close() {
  if (state_ == State::kClosed) return;
  if (state_ == State::kWorking) --shared_.num_busy;
  state_ = State::kClosed;
  io_.sessions.erase(this);
  --shared_.num_connections;
  ErrorCode ignored;
  socket_.close(ignored);
  timer_.cancel();
  out_.clear();
  queued_bytes_ = 0;
  if (const std::shared_ptr<Exchange> exchange = std::exchange(exchange_, nullptr)) exchange->Abandon();
}

void HttpSession::PrepareForNext() {
  state_ = State::kIdle;
  parser_.emplace();
  parser_->header_limit(shared_.limits.header_bytes_max);
  parser_->body_limit(shared_.limits.body_bytes_max);
  parser_->eager(true);
  has_header_ = false;
  charge_ = BodyCharge(shared_.body_bytes);
  charged_bytes_ = 0;
}

void HttpSession::BeginRead() {
  if (is_reading_ || state_ == State::kClosed) return;
  // Enough was read ahead; more is read when this answer is out.
  if (state_ == State::kWorking && buffer_.size() >= kPipelinedBytesMax) return;
  is_reading_ = true;
  auto done = [self = shared_from_this()](ErrorCode error, size_t num_bytes) {
    self->is_reading_ = false;
    self->OnRead(error, num_bytes);
  };
  if (tls_stream_.has_value()) {
    tls_stream_->async_read_some(buffer_.prepare(kReadBytes), std::move(done));
  } else {
    socket_.async_read_some(buffer_.prepare(kReadBytes), std::move(done));
  }
}

void HttpSession::OnRead(ErrorCode error, size_t num_bytes) {
  if (state_ == State::kClosed) return;
  if (error) {
    Close();  // the peer has left; whoever works for it is told
    return;
  }
  if (state_ == State::kLingering) {
    lingered_bytes_ += num_bytes;
    if (lingered_bytes_ > kLingerBytesMax) {
      Close();
      return;
    }
  } else {
    buffer_.commit(num_bytes);
    if (state_ != State::kWorking) Parse();
  }
  BeginRead();
}

void HttpSession::Parse() {
  while (buffer_.size() > 0 && (state_ == State::kIdle || state_ == State::kReading)) {
    if (state_ == State::kIdle) {
      state_ = State::kReading;
      arrival_ = Clock::now();
      SetDeadline(arrival_ + shared_.limits.header_timeout);
    }
    ErrorCode error;
    const size_t num_consumed = parser_->put(buffer_.data(), error);
    buffer_.consume(num_consumed);
    const bool needs_more = error == http::error::need_more;
    if (error == http::error::header_limit) {
      Refuse(431, "", fmt::format("the headers exceed {} bytes (--h11-max-incomplete-event-size)", shared_.limits.header_bytes_max));
    } else if (error == http::error::body_limit) {
      Refuse(413, "", fmt::format("the body exceeds {} bytes", shared_.limits.body_bytes_max));
    } else if (error && !needs_more) {
      Refuse(400, "", fmt::format("not a valid HTTP request: {}", error.message()));
    } else if (parser_->is_header_done() && (has_header_ || AcceptHeader())) {
      AcceptBody();
    }
    if (needs_more || num_consumed == 0) return;
  }
}

bool HttpSession::AcceptHeader() {
  has_header_ = true;
  const auto& message = parser_->get();
  const auto num_headers = std::distance(message.begin(), message.end());
  if (num_headers > shared_.limits.header_count_max) {
    Refuse(431, "", fmt::format("{} header fields, at most {} (--h11-max-header-count)", num_headers, shared_.limits.header_count_max));
    return false;
  }
  if (message.target().size() > limits::kTargetBytesMax) {
    Refuse(414, "", fmt::format("the URL has {} bytes, at most {}", message.target().size(), limits::kTargetBytesMax));
    return false;
  }
  const bool expects_continue = beast::iequals(message[http::field::expect], "100-continue");
  if (expects_continue && message.version() >= 11 && !parser_->is_done()) Send("HTTP/1.1 100 Continue\r\n\r\n");
  return true;
}

void HttpSession::AcceptBody() {
  const size_t num_bytes = parser_->get().body().size();
  const size_t in_flight = charge_.Add(num_bytes - charged_bytes_);
  charged_bytes_ = num_bytes;
  if (in_flight > limits::kBodiesBytesMax) {
    Refuse(503, "", fmt::format("the bodies of all requests together exceed {} bytes; try again later", limits::kBodiesBytesMax));
  } else if (parser_->is_done()) {
    OnRequest();
  } else {
    SetDeadline(Clock::now() + shared_.limits.read_timeout);
  }
}

HttpRequest HttpSession::TakeRequest() {
  auto& message = parser_->get();
  HttpRequest request;
  request.method = std::string(message.method_string());
  std::string_view target(message.target().data(), message.target().size());
  if (target.starts_with("http://")) {
    const size_t path = target.find('/', std::strlen("http://"));
    target = path == std::string_view::npos ? "/" : target.substr(path);
  }
  const size_t query = target.find('?');
  request.path = target.substr(0, query);
  if (query != std::string_view::npos) request.query = target.substr(query + 1);
  for (const auto& field : message) {
    request.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  }
  request.peer = peer_;
  request.arrival = arrival_;
  return request;
}

void HttpSession::OnRequest() {
  state_ = State::kWorking;
  ++shared_.num_busy;
  SetDeadline(Clock::time_point::max());
  keeps_alive_ = parser_->get().keep_alive();
  const bool is_chunked = parser_->get().version() >= 11;
  HttpRequest request = TakeRequest();
  HttpRequest head;
  head.method = request.method;
  head.path = request.path;
  head.query = request.query;
  head.peer = peer_;
  head.arrival = arrival_;
  request.body = std::move(parser_->get().body());
  request.charge = std::move(charge_);
  parser_.reset();
  exchange_ = std::make_shared<Exchange>(shared_from_this(), std::move(head), is_chunked);
  shared_.hooks.handle(std::move(request), exchange_);
}

void HttpSession::Refuse(int status, std::string_view type, std::string message) {
  state_ = State::kWorking;
  ++shared_.num_busy;
  keeps_alive_ = false;
  HttpRequest head = parser_->is_header_done() ? TakeRequest() : HttpRequest{};
  head.peer = peer_;
  parser_.reset();
  charge_ = {};
  exchange_ = std::make_shared<Exchange>(shared_from_this(), std::move(head), true);
  exchange_->Respond(status, "application/json", ErrorBody({status, std::string(type), std::move(message), {}}));
}

std::string HttpSession::HeaderLines(int status) const {
  const bool keeps_alive = keeps_alive_ && !shared_.is_draining;
  return fmt::format("HTTP/1.1 {} {}\r\n{}server: avocet\r\nconnection: {}\r\n", status, ReasonPhrase(status), DateLine(),
                     keeps_alive ? "keep-alive" : "close");
}

void HttpSession::EndExchange() {
  if (exchange_ != nullptr) exchange_->Seal();
}

void HttpSession::Send(std::string bytes) {
  if (state_ == State::kClosed) return;
  queued_bytes_ += bytes.size();
  // Small pieces that have to wait are joined: one system call for many events.
  if (out_.size() > num_writing_ && out_.back().size() + bytes.size() <= kJoinedBytesMax) {
    out_.back() += bytes;
  } else {
    out_.push_back(std::move(bytes));
  }
  if (!is_writing_) BeginWrite();
}

void HttpSession::BeginWrite() {
  std::array<asio::const_buffer, kWriteBuffersMax> buffers;
  num_writing_ = std::min(out_.size(), kWriteBuffersMax);
  for (size_t i = 0; i < num_writing_; ++i) buffers[i] = asio::buffer(out_[i]);
  buffers[0] += out_offset_;
  is_writing_ = true;
  SetDeadline(Clock::now() + shared_.limits.write_timeout);
  auto done = [self = shared_from_this()](ErrorCode error, size_t num_bytes) {
    self->is_writing_ = false;
    self->num_writing_ = 0;
    self->OnWritten(error, num_bytes);
  };
  if (tls_stream_.has_value()) {
    tls_stream_->async_write_some(buffers, std::move(done));
  } else {
    socket_.async_write_some(buffers, std::move(done));
  }
}

void HttpSession::OnWritten(ErrorCode error, size_t num_bytes) {
  if (state_ == State::kClosed) return;
  if (error) {
    Close();
    return;
  }
  queued_bytes_ -= num_bytes;
  out_offset_ += num_bytes;
  while (!out_.empty() && out_offset_ >= out_.front().size()) {
    out_offset_ -= out_.front().size();
    out_.pop_front();
  }
  if (!out_.empty()) {
    BeginWrite();
    return;
  }
  if (state_ == State::kWorking) {
    SetDeadline(Clock::time_point::max());
    if (exchange_ != nullptr && !exchange_->is_open()) OnAnswerSent();
  } else if (state_ == State::kReading) {
    SetDeadline(Clock::now() + shared_.limits.read_timeout);  // 100 Continue is out, the body is due
  }
}

void HttpSession::OnAnswerSent() {
  --shared_.num_busy;
  exchange_ = nullptr;
  if (!keeps_alive_ || shared_.is_draining) {
    BeginLinger();
    return;
  }
  PrepareForNext();
  SetDeadline(Clock::now() + shared_.limits.keep_alive);
  Parse();  // what was pipelined
  BeginRead();
}

void HttpSession::BeginLinger() {
  state_ = State::kLingering;
  ErrorCode ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
  buffer_.consume(buffer_.size());
  SetDeadline(Clock::now() + kLingerTime);
  BeginRead();
}

void HttpSession::SetDeadline(Clock::time_point deadline) {
  deadline_ = deadline;
  // An armed timer that fires too early looks at deadline_ again; it is only set anew when it would fire too late.
  if (deadline < timer_expiry_) ArmTimer();
}

void HttpSession::ArmTimer() {
  timer_expiry_ = deadline_;
  timer_.expires_at(deadline_);
  timer_.async_wait([self = shared_from_this(), expiry = deadline_](ErrorCode error) {
    if (error || self->timer_expiry_ != expiry) return;
    self->OnTimer();
  });
}

void HttpSession::OnTimer() {
  timer_expiry_ = Clock::time_point::max();
  if (state_ == State::kClosed || deadline_ == Clock::time_point::max()) return;
  if (Clock::now() >= deadline_) {
    OnDeadline();
  } else {
    ArmTimer();
  }
}

void HttpSession::OnDeadline() {
  if (state_ == State::kReading && !is_writing_) {
    Refuse(408, "", "the request did not arrive in time");
    return;
  }
  if (state_ == State::kWorking)
    LogWarning("{} takes no byte of its answer for {} ms; closed", peer_, shared_.limits.write_timeout.count());
  Close();
}

}  // namespace avocet::server::internal
