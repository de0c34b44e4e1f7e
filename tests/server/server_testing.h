// For the server's tests: a scripted engine, a byte-level tokenizer (id = byte, 256 = <|im_end|>), and an HTTP client over a raw socket.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "server/json_input.h"
#include "server/server.h"
#include "tokenizer/tokenizer_testing.h"

namespace avocet::server {

inline constexpr int32_t kEos = 256;
inline constexpr int32_t kTestVocabulary = 257;

inline std::shared_ptr<const tokenizer::Tokenizer> ByteTokenizer() {
  auto json = tokenizer::MakeTokenizerJson({});
  json["added_tokens"].push_back(tokenizer::MakeAddedToken(kEos, "<|im_end|>"));
  return tokenizer::MustParse(json, R"({"eos_token":"<|im_end|>"})");
}

inline std::vector<int32_t> BytesOf(std::string_view text) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

// Says what a script tells it to, some tokens per step; keeps the engine's promises (one terminal event per request).
class ScriptedBackend final : public CompletionBackend {
 public:
  // The tokens that the model would sample. What ends them: <|im_end|>, max_tokens, or a cancel.
  using Script = std::function<std::vector<int32_t>(const engine::Request&)>;

  ScriptedBackend(engine::EventSink& sink, Script script, std::chrono::microseconds step_time = std::chrono::microseconds(0),
                  size_t tokens_per_step = 1)
      : sink_(sink), script_(std::move(script)), step_time_(step_time), tokens_per_step_(tokens_per_step), thread_([this] { Run(); }) {}

  ~ScriptedBackend() override {
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
    }
    wakeup_.notify_all();
    thread_.join();
  }

  Result<void> Submit(engine::Request request) override {
    const std::lock_guard lock(mutex_);
    if (is_full_) return Fail(Errc::kResourceExhausted, "the queue is full");
    ++num_submitted_;
    last_request_ = request;
    const engine::RequestId id = request.id;
    live_[id] = {std::move(request), {}, 0, false, {}};
    live_[id].tokens = script_(live_[id].request);
    wakeup_.notify_all();
    return {};
  }

  void Cancel(engine::RequestId id) override {
    const std::lock_guard lock(mutex_);
    ++num_cancels_;
    if (const auto found = live_.find(id); found != live_.end()) found->second.is_cancelled = true;
    wakeup_.notify_all();
  }

  engine::EngineStats stats() const override {
    const std::lock_guard lock(mutex_);
    engine::EngineStats stats;
    stats.num_running = static_cast<int64_t>(live_.size());
    stats.generation_tokens = num_tokens_;
    stats.steps = num_steps_;
    return stats;
  }
  bool is_healthy() const override { return is_healthy_; }

  size_t num_live() const {
    const std::lock_guard lock(mutex_);
    return live_.size();
  }
  int64_t num_submitted() const {
    const std::lock_guard lock(mutex_);
    return num_submitted_;
  }
  int64_t num_cancels() const {
    const std::lock_guard lock(mutex_);
    return num_cancels_;
  }
  engine::Request last_request() const {
    const std::lock_guard lock(mutex_);
    return last_request_;
  }
  void set_full(bool is_full) {
    const std::lock_guard lock(mutex_);
    is_full_ = is_full;
  }
  void set_healthy(bool is_healthy) { is_healthy_ = is_healthy; }
  // While held nothing is sampled.
  void set_held(bool is_held) {
    {
      const std::lock_guard lock(mutex_);
      is_held_ = is_held;
    }
    wakeup_.notify_all();
  }
  // Every request fails with this message at its next step.
  void set_error(std::string error) {
    {
      const std::lock_guard lock(mutex_);
      error_ = std::move(error);
    }
    wakeup_.notify_all();
  }

 private:
  struct Live {
    engine::Request request;
    std::vector<int32_t> tokens;
    size_t num_done = 0;
    bool is_cancelled = false;
    engine::RequestTimes times;
  };

  static engine::TokenLogprobs Logprobs(int32_t id, int32_t num_top) {
    // The token has rank 1 and -0.5; the next ids follow.
    engine::TokenLogprobs logprobs;
    logprobs.top.push_back({id, -0.5f, 1});
    for (int32_t i = 0; i < num_top; ++i) {
      logprobs.top.push_back({(id + i) % kTestVocabulary, -0.5f - static_cast<float>(i), i + 1});
    }
    return logprobs;
  }

  engine::RequestEvent Step(Live& live) {
    engine::RequestEvent event;
    event.id = live.request.id;
    const auto now = engine::Clock::now();
    live.times.arrival = live.request.arrival;
    if (live.num_done == 0) {
      live.times.first_scheduled = live.times.first_token = now;
      if (live.request.prompt_logprobs >= 0) {
        event.prompt_logprobs.emplace_back();
        for (size_t i = 1; i < live.request.prompt.size(); ++i) {
          event.prompt_logprobs.emplace_back(Logprobs(live.request.prompt[i], live.request.prompt_logprobs));
        }
      }
    }
    live.times.last_token = now;
    const engine::SamplingParams& sampling = live.request.sampling;
    for (size_t i = 0; i < tokens_per_step_ && !event.finish.has_value(); ++i) {
      const int32_t id = live.num_done < live.tokens.size() ? live.tokens[live.num_done] : kEos;
      ++live.num_done;
      ++num_tokens_;
      event.tokens.push_back({id, std::nullopt});
      if (live.request.logprobs >= 0) event.tokens.back().logprobs = Logprobs(id, live.request.logprobs);
      if (std::ranges::find(sampling.stop_token_ids, id) != sampling.stop_token_ids.end()) {
        event.finish = engine::FinishReason::kStop;
        event.stop_token = id;
      } else if (!sampling.ignore_eos && std::ranges::find(sampling.eos_token_ids, id) != sampling.eos_token_ids.end()) {
        event.finish = engine::FinishReason::kStop;
      } else if (live.num_done >= static_cast<size_t>(sampling.max_tokens)) {
        event.finish = engine::FinishReason::kLength;
      }
    }
    event.times = live.times;
    return event;
  }

  void Run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wakeup_.wait(lock, [this] { return is_stopping_ || (!live_.empty() && (!is_held_ || HasCancelled())); });
      std::vector<engine::RequestEvent> events;
      ++num_steps_;
      for (auto& [id, live] : live_) {
        if (is_stopping_ || live.is_cancelled || !error_.empty()) {
          engine::RequestEvent event;
          event.id = id;
          event.finish = error_.empty() ? engine::FinishReason::kAbort : engine::FinishReason::kError;
          event.error = error_;
          events.push_back(std::move(event));
        } else if (!is_held_) {
          events.push_back(Step(live));
        }
      }
      for (const engine::RequestEvent& event : events) {
        if (event.finish.has_value()) live_.erase(event.id);
      }
      const bool is_stopping = is_stopping_;
      lock.unlock();
      if (!events.empty()) sink_.OnEvents(events);
      if (is_stopping) return;
      if (step_time_.count() > 0) std::this_thread::sleep_for(step_time_);
      lock.lock();
    }
  }

  bool HasCancelled() const {
    return !error_.empty() || std::ranges::any_of(live_, [](const auto& entry) { return entry.second.is_cancelled; });
  }

  engine::EventSink& sink_;
  Script script_;
  std::chrono::microseconds step_time_;
  size_t tokens_per_step_;
  mutable std::mutex mutex_;
  std::condition_variable wakeup_;
  std::map<engine::RequestId, Live> live_;
  engine::Request last_request_;
  std::string error_;
  std::atomic<bool> is_healthy_{true};
  bool is_full_ = false;
  bool is_held_ = false;
  bool is_stopping_ = false;
  int64_t num_submitted_ = 0;
  int64_t num_cancels_ = 0;
  int64_t num_tokens_ = 0;
  int64_t num_steps_ = 0;
  std::thread thread_;
};

struct Reply {
  int status = 0;                              // 0: the connection ended without an answer
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;

  Json json() const {
    Json value = Json::parse(body, nullptr, false);
    if (value.is_discarded()) ADD_FAILURE() << "not JSON: " << body;
    return value;
  }
  // The data of each server-sent event.
  std::vector<std::string> events() const {
    std::vector<std::string> events;
    size_t begin = 0;
    while (begin < body.size()) {
      const size_t end = body.find("\n\n", begin);
      if (end == std::string::npos || body.compare(begin, 6, "data: ") != 0) {
        ADD_FAILURE() << "not an event: " << body.substr(begin, 100);
        return events;
      }
      events.push_back(body.substr(begin + 6, end - begin - 6));
      begin = end + 2;
    }
    return events;
  }
};

// A connection that sends what it is told and reads answers. Gives up after 20 seconds.
class TestClient {
 public:
  explicit TestClient(uint16_t port, int receive_buffer_bytes = 0) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer_bytes > 0) setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof(receive_buffer_bytes));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    is_connected_ = connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;
  ~TestClient() { Close(); }

  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }
  // The peer sees a reset instead of an end.
  void Reset() {
    const linger reset{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    Close();
  }
  bool is_connected() const { return is_connected_; }

  // False: the peer took not all of it.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t num = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (num <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(num));
    }
    return true;
  }

  // The next answer on this connection. HEAD: no body follows.
  Reply Read(bool has_body = true) {
    Reply reply;
    while (held_.find("\r\n\r\n") == std::string::npos) {
      if (!Fill()) return reply;
    }
    const size_t end = held_.find("\r\n\r\n");
    const std::string head = held_.substr(0, end + 2);
    held_.erase(0, end + 4);
    reply.status = std::atoi(head.c_str() + std::strlen("HTTP/1.1 "));
    for (size_t line = head.find("\r\n") + 2; line < head.size();) {
      const size_t line_end = head.find("\r\n", line);
      const size_t colon = head.find(':', line);
      std::string name = head.substr(line, colon - line);
      for (char& c : name) c = static_cast<char>(std::tolower(c));
      reply.headers[name] = head.substr(colon + 2, line_end - colon - 2);
      line = line_end + 2;
    }
    if (reply.status == 100) return Read(has_body);
    if (!has_body || reply.status == 204) return reply;
    if (reply.headers.contains("transfer-encoding")) {
      ReadChunks(reply.body);
    } else if (reply.headers.contains("content-length")) {
      ReadBytes(std::stoul(reply.headers["content-length"]), reply.body);
    } else {
      while (Fill()) {
      }
      reply.body = std::exchange(held_, {});
    }
    return reply;
  }

  // Reads until `text` has come; false if the connection ends before.
  bool ReadUntil(std::string_view text) {
    while (held_.find(text) == std::string::npos) {
      if (!Fill()) return false;
    }
    return true;
  }
  // True: the peer has closed and nothing is unread.
  bool IsAtEnd() { return held_.empty() && !Fill(); }

 private:
  bool Fill() {
    pollfd waiting{fd_, POLLIN, 0};
    if (poll(&waiting, 1, 20'000) <= 0) {
      ADD_FAILURE() << "no byte for 20 seconds";
      return false;
    }
    char bytes[16384];
    const ssize_t num = recv(fd_, bytes, sizeof(bytes), 0);
    if (num <= 0) return false;
    held_.append(bytes, static_cast<size_t>(num));
    return true;
  }
  bool ReadBytes(size_t count, std::string& out) {
    while (held_.size() < count) {
      if (!Fill()) return false;
    }
    out += held_.substr(0, count);
    held_.erase(0, count);
    return true;
  }
  void ReadChunks(std::string& out) {
    for (;;) {
      while (held_.find("\r\n") == std::string::npos) {
        if (!Fill()) return;
      }
      const size_t count = std::stoul(held_, nullptr, 16);
      held_.erase(0, held_.find("\r\n") + 2);
      std::string ignored;
      if (!ReadBytes(count, out) || !ReadBytes(2, ignored) || count == 0) return;
    }
  }

  int fd_;
  bool is_connected_ = false;
  std::string held_;
};

inline std::string PostBytes(std::string_view path, std::string_view body, std::string_view more_headers = "") {
  return fmt::format("POST {} HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\ncontent-length: {}\r\n{}\r\n{}", path,
                     body.size(), more_headers, body);
}
inline std::string GetBytes(std::string_view path, std::string_view more_headers = "") {
  return fmt::format("GET {} HTTP/1.1\r\nhost: test\r\n{}\r\n", path, more_headers);
}

inline bool WaitUntil(const std::function<bool()>& condition, std::chrono::milliseconds limit = std::chrono::seconds(20)) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

inline constexpr std::string_view kTestTemplate =
    "{% for m in messages %}{% if m.role == 'bad' %}{{ raise_exception('Unexpected role.') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}{% if m.tool_calls %}{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}{% endfor %}{% endif "
    "%}"
    "{% endfor %}{% if tools %}[{{ tools | length }} tools]{% endif %}{% if enable_thinking is defined %}[{{ enable_thinking }}]{% endif %}"
    "{% if add_generation_prompt %}<a>{% endif %}";

inline ServerOptions TestOptions() {
  ServerOptions options;
  options.listen = {.host = "127.0.0.1", .port = 0, .uds = ""};
  options.served_model_names = {"test", "alias"};
  options.model_root = "/models/test";
  options.max_model_len = 2048;
  options.vocab_size = kTestVocabulary;
  options.eos_token_ids = {kEos};
  options.access_log = false;
  return options;
}

// A server with a scripted engine.
class TestServer {
 public:
  explicit TestServer(std::string answer, ServerOptions options = TestOptions(), std::chrono::microseconds step_time = {},
                      size_t tokens_per_step = 1)
      : TestServer([ids = BytesOf(answer)](const engine::Request&) { return ids; }, std::move(options), step_time, tokens_per_step) {}

  explicit TestServer(ScriptedBackend::Script script, ServerOptions options = TestOptions(), std::chrono::microseconds step_time = {},
                      size_t tokens_per_step = 1) {
    auto chat_template = tokenizer::ChatTemplate::Parse(kTestTemplate, "test");
    if (!chat_template) throw std::runtime_error(chat_template.error().message);
    auto created = Server::Create(std::move(options), ByteTokenizer(), *std::move(chat_template));
    if (!created) throw std::runtime_error(created.error().message);
    server_ = *std::move(created);
    auto backend = std::make_unique<ScriptedBackend>(server_->sink(), std::move(script), step_time, tokens_per_step);
    backend_ = backend.get();
    server_->Attach(std::move(backend));
    if (auto started = server_->Start(); !started) throw std::runtime_error(started.error().message);
  }

  Server& server() { return *server_; }
  ScriptedBackend& backend() { return *backend_; }
  uint16_t port() const { return server_->port(); }

  Reply Post(std::string_view path, std::string_view body, std::string_view more_headers = "") {
    TestClient client(port());
    client.Send(PostBytes(path, body, more_headers));
    return client.Read();
  }
  Reply Get(std::string_view path, std::string_view more_headers = "") {
    TestClient client(port());
    client.Send(GetBytes(path, more_headers));
    return client.Read();
  }
  Reply Complete(std::string_view body) { return Post("/v1/completions", body); }
  Reply Chat(std::string_view body) { return Post("/v1/chat/completions", body); }

 private:
  std::unique_ptr<Server> server_;
  ScriptedBackend* backend_ = nullptr;
};

}  // namespace avocet::server
