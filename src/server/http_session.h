// One connection of http_server.h: reads requests one after the other, hands each to the handler, writes its answer. Included by the
// two http .cpp files only.
// A read is always pending, also while an answer is awaited or written: so a peer that leaves is noticed at once, and what it
// pipelines waits in the buffer.
//
//   kIdle -> kReading -> kWorking -> kIdle ...          kLingering: the answer is out, the rest of the request is thrown away, so that
//                 any of them -> kLingering -> kClosed  the peer gets to read the answer instead of a reset
//
// Owner: its io thread. shared_ptr: pending operations of the socket keep a session alive (docs/adr/0006).
#pragma once

#include <deque>
#include <optional>
#include <thread>
#include <unordered_set>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "server/http_server.h"
#include "server/tls.h"

namespace avocet::server::internal {

namespace asio = boost::asio;
namespace beast = boost::beast;
using ErrorCode = boost::system::error_code;
using Socket = asio::generic::stream_protocol::socket;

class HttpSession;

// What sessions share.
struct HttpShared {
  HttpLimits limits;
  HttpHooks hooks;
  std::atomic<bool> is_draining{false};
  std::atomic<int32_t> num_connections{0};
  std::atomic<int32_t> num_busy{0};
  std::atomic<size_t> body_bytes{0};  // of requests being received or prepared

  // Of new connections; null: plain HTTP. Io thread 0 only.
  TlsContext tls;
};

struct IoThread {
  explicit IoThread(int32_t index_in) : index(index_in) {
    // Makes the context open its descriptors now: with the first connection there may be none left.
    const asio::steady_timer opens_descriptors(context);
  }

  int32_t index;
  std::unordered_set<HttpSession*> sessions;  // that are not closed; this thread only
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> work = asio::make_work_guard(context);
  std::thread thread;
};

class HttpSession final : public std::enable_shared_from_this<HttpSession> {
 public:
  // tls: null: plain HTTP.
  HttpSession(IoThread& io, HttpShared& shared, Socket socket, std::string peer, TlsContext tls);
  ~HttpSession();

  void Start();
  void CloseIfIdle();
  void Close();
  IoThread& io() { return io_; }

 private:
  class Exchange;
  enum class State : uint8_t { kIdle, kReading, kWorking, kLingering, kClosed };

  // Reading.
  void BeginRead();
  void OnRead(ErrorCode error, size_t num_bytes);
  void Parse();
  bool AcceptHeader();  // false: refused
  void AcceptBody();
  void OnRequest();
  void PrepareForNext();
  HttpRequest TakeRequest();
  void Refuse(int status, std::string_view type, std::string message);

  // Writing.
  void Send(std::string bytes);
  void BeginWrite();
  void OnWritten(ErrorCode error, size_t num_bytes);
  void OnAnswerSent();
  void BeginLinger();
  std::string HeaderLines(int status) const;
  void EndExchange();  // the answer is queued completely

  // Time.
  void SetDeadline(Clock::time_point deadline);
  void ArmTimer();
  void OnTimer();
  void OnDeadline();

  IoThread& io_;
  HttpShared& shared_;
  Socket socket_;
  TlsContext tls_context_;                                // before the stream that uses it
  std::optional<asio::ssl::stream<Socket&>> tls_stream_;  // through which all bytes go, if there is one
  std::string peer_;
  State state_ = State::kIdle;
  bool keeps_alive_ = true;  // after the current answer

  bool is_reading_ = false;
  beast::flat_buffer buffer_;
  using Parser = beast::http::request_parser<beast::http::string_body>;
  std::optional<Parser> parser_;
  bool has_header_ = false;  // of the current request, checked
  BodyCharge charge_;
  size_t charged_bytes_ = 0;
  Clock::time_point arrival_;
  size_t lingered_bytes_ = 0;

  std::deque<std::string> out_;
  size_t out_offset_ = 0;  // bytes of the first one already written
  size_t queued_bytes_ = 0;
  bool is_writing_ = false;
  size_t num_writing_ = 0;              // strings at the front of out_ that the pending write refers to
  std::shared_ptr<Exchange> exchange_;  // of kWorking

  asio::steady_timer timer_;
  Clock::time_point deadline_ = Clock::time_point::max();
  Clock::time_point timer_expiry_ = Clock::time_point::max();  // max: not armed
};

}  // namespace avocet::server::internal
