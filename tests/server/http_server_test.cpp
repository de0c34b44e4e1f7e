// Hostile and clumsy peers, over real sockets: each costs its own connection and nothing else.
#include "server/http_server.h"

#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/un.h>

#include "server/server_testing.h"

namespace avocet::server {
namespace {

using namespace std::chrono_literals;

ServerOptions ImpatientOptions() {
  ServerOptions options = TestOptions();
  options.http.header_timeout = 200ms;
  options.http.read_timeout = 200ms;
  options.http.write_timeout = 300ms;
  options.http.keep_alive = 200ms;
  options.http.header_bytes_max = 16 << 10;
  options.http.header_count_max = 64;
  options.http.body_bytes_max = 1 << 20;
  return options;
}

size_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  size_t total = 0;
  size_t resident = 0;
  statm >> total >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

Reply SendRaw(TestServer& server, std::string_view bytes) {
  TestClient client(server.port());
  client.Send(bytes);
  return client.Read();
}

TEST(HttpServer, MalformedRequests_Get400AndClose) {
  TestServer server("x");
  for (const std::string_view bytes :
       {"GARBAGE\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET / HTTP/1.1\r\nno colon\r\n\r\n", "GET / HTTP/1.1\r\n: x\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\ncontent-length: abc\r\n\r\n", "POST /v1/completions HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nabcdef",
        "POST /v1/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nabc\r\n",
        "POST /v1/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\nabc\r\n",
        "POST /v1/completions HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", "\x16\x03\x01\x02\r\n\r\n"}) {
    TestClient client(server.port());
    client.Send(bytes);
    const Reply reply = client.Read();
    EXPECT_EQ(reply.status, 400) << bytes;
    EXPECT_EQ(reply.headers.at("connection"), "close");
    EXPECT_EQ(reply.json()["error"]["code"], 400);
    EXPECT_TRUE(client.IsAtEnd());
  }
  EXPECT_EQ(server.Get("/health").status, 200);
}

// Requests with bytes changed, removed and doubled, sent in pieces: an answer or the end of the connection, and others are served.
TEST(HttpServer, DamagedRequests_CostTheirConnectionOnly) {
  const uint32_t seed = 20261201;
  std::mt19937 random(seed);
  TestServer server("x", ImpatientOptions());
  const std::vector<std::string> originals{PostBytes("/v1/completions", R"({"prompt":"abc","stream":true,"n":2})"),
                                           GetBytes("/v1/models", "connection: keep-alive\r\nx: y\r\n"),
                                           "POST /tokenize HTTP/1.1\r\ncontent-type: application/json\r\ntransfer-encoding: "
                                           "chunked\r\n\r\n6\r\n{\"prom\r\n7\r\npt\":1}\n\r\n0\r\n\r\n"};
  for (int round = 0; round < 400; ++round) {
    std::string bytes = originals[random() % originals.size()] + originals[random() % originals.size()];
    for (auto n = 1 + random() % 4; n > 0; --n) {
      const size_t at = random() % bytes.size();
      switch (random() % 3) {
        case 0: bytes[at] = static_cast<char>(random() % 256); break;
        case 1: bytes.erase(at, 1 + random() % 8); break;
        default: bytes.insert(at, bytes.substr(at, 1 + random() % 8)); break;
      }
    }
    TestClient client(server.port());
    const size_t cut = random() % bytes.size();
    client.Send(std::string_view(bytes).substr(0, cut));
    client.Send(std::string_view(bytes).substr(cut));
    if (round % 8 == 0) {
      const int status = client.Read().status;
      EXPECT_TRUE(status == 0 || (status >= 200 && status < 500)) << "seed " << seed << ", round " << round << ", status " << status;
    }
  }
  EXPECT_EQ(server.Get("/health").status, 200);
  EXPECT_TRUE(WaitUntil([&] { return server.backend().num_live() == 0; }));
}

TEST(HttpServer, ChunkedBody_IsReadInAnyPieces) {
  TestServer server("x");
  const std::string bytes =
      "POST /v1/completions HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
      "4\r\n{\"pr\r\n8;ext=1\r\nompt\":\"a\r\n2\r\n\"}\r\n0\r\ntrailer: x\r\n\r\n";
  EXPECT_EQ(SendRaw(server, bytes).status, 200);
  TestClient slow(server.port());
  for (const char c : bytes) ASSERT_TRUE(slow.Send({&c, 1}));
  EXPECT_EQ(slow.Read().status, 200);
}

TEST(HttpServer, Limits_HaveTheirStatus) {
  TestServer server("x", ImpatientOptions());
  EXPECT_EQ(SendRaw(server, GetBytes("/" + std::string(9000, 'a'))).status, 414);
  EXPECT_EQ(SendRaw(server, GetBytes("/health", "x: " + std::string(20'000, 'a') + "\r\n")).status, 431);
  std::string many;
  for (int i = 0; i < 100; ++i) many += fmt::format("x{}: 1\r\n", i);
  EXPECT_EQ(SendRaw(server, GetBytes("/health", many)).status, 431);
  EXPECT_EQ(SendRaw(server, "POST /tokenize HTTP/1.1\r\nhost: t\r\ncontent-length: 2000000\r\n\r\n").status, 413);
  std::string chunks = "POST /tokenize HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n";
  for (int i = 0; i < 40; ++i) chunks += "8000\r\n" + std::string(0x8000, 'x') + "\r\n";
  EXPECT_EQ(SendRaw(server, chunks).status, 413);
  EXPECT_EQ(server.Get("/health").status, 200);
}

TEST(HttpServer, EndlessHeader_DoesNotGrowMemory) {
  ServerOptions options = TestOptions();
  options.http.header_bytes_max = 64 << 10;
  TestServer server("x", std::move(options));
  const size_t before = ResidentBytes();
  TestClient client(server.port());
  client.Send("GET / HTTP/1.1\r\nx: ");
  const std::string piece(1 << 20, 'a');
  int num_sent = 0;
  while (num_sent < 100 && client.Send(piece)) ++num_sent;
  EXPECT_LT(num_sent, 100) << "100 MB of header were taken";
  EXPECT_LT(ResidentBytes(), before + (size_t{50} << 20));
}

TEST(HttpServer, SlowHeaders_TimeOut) {
  TestServer server("x", ImpatientOptions());
  TestClient dribble(server.port());
  dribble.Send("GET /health HT");
  EXPECT_EQ(dribble.Read().status, 408);
  TestClient silent(server.port());
  EXPECT_TRUE(silent.IsAtEnd());
  TestClient body(server.port());
  body.Send("POST /tokenize HTTP/1.1\r\nhost: t\r\ncontent-length: 100\r\n\r\n{");
  EXPECT_EQ(body.Read().status, 408);
}

TEST(HttpServer, ManyHalfOpenConnections_DoNotDelayOthers) {
  TestServer server("x");
  std::vector<std::unique_ptr<TestClient>> half_open;
  for (int i = 0; i < 500; ++i) {
    half_open.push_back(std::make_unique<TestClient>(server.port()));
    half_open.back()->Send("POST /v1/completions HTTP/1.1\r\ncontent-le");
  }
  // The bound is for a machine that runs other things: it is milliseconds when idle.
  const auto begin = Clock::now();
  EXPECT_EQ(server.Complete(R"({"prompt":"a"})").status, 200);
  EXPECT_LT(Clock::now() - begin, 2s);
}

TEST(HttpServer, ConnectionLimit_Answers503) {
  ServerOptions options = TestOptions();
  options.http.connections_max = 2;
  TestServer server("x", std::move(options));
  TestClient first(server.port());
  TestClient second(server.port());
  first.Send(GetBytes("/health"));
  EXPECT_EQ(first.Read().status, 200);
  second.Send(GetBytes("/health"));
  EXPECT_EQ(second.Read().status, 200);
  TestClient third(server.port());
  EXPECT_EQ(third.Read().status, 503);
  first.Close();
  EXPECT_TRUE(WaitUntil([&] { return server.Get("/health").status == 200; }));
}

TEST(HttpServer, KeepAlive_ManyRequestsThenIdleClose) {
  TestServer server("x", ImpatientOptions());
  TestClient client(server.port());
  for (int i = 0; i < 50; ++i) {
    client.Send(i % 2 == 0 ? GetBytes("/health") : PostBytes("/v1/completions", R"({"prompt":"a","stream":true})"));
    EXPECT_EQ(client.Read().status, 200);
  }
  EXPECT_TRUE(client.IsAtEnd());
}

TEST(HttpServer, ConnectionClose_IsHonoured) {
  TestServer server("x");
  TestClient client(server.port());
  client.Send(GetBytes("/health", "connection: close\r\n"));
  EXPECT_EQ(client.Read().headers.at("connection"), "close");
  EXPECT_TRUE(client.IsAtEnd());
}

TEST(HttpServer, Http10_StreamEndsWithTheConnection) {
  TestServer server("abc");
  TestClient client(server.port());
  const std::string_view body = R"({"prompt":"a","stream":true})";
  client.Send(
      fmt::format("POST /v1/completions HTTP/1.0\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{}", body.size(), body));
  const Reply reply = client.Read();
  EXPECT_FALSE(reply.headers.contains("transfer-encoding"));
  EXPECT_EQ(reply.events().back(), "[DONE]");
}

TEST(HttpServer, Pipelining_AnswersInOrder) {
  TestServer server([](const engine::Request& request) { return std::vector<int32_t>{request.prompt.back(), kEos}; });
  TestClient client(server.port());
  std::string bytes;
  for (int i = 0; i < 26; ++i) {
    bytes += PostBytes("/v1/completions",
                       fmt::format(R"({{"prompt":"{}"{}}})", static_cast<char>('a' + i), i % 3 == 0 ? R"(,"stream":true)" : ""));
    bytes += GetBytes("/health");
  }
  client.Send(bytes);
  for (int i = 0; i < 26; ++i) {
    const Reply reply = client.Read();
    const Json answer = i % 3 == 0 ? Json::parse(reply.events()[0]) : reply.json();
    EXPECT_EQ(answer["choices"][0]["text"], std::string(1, static_cast<char>('a' + i)));
    EXPECT_EQ(client.Read().status, 200);
  }
}

TEST(HttpServer, PipelinedJunk_IsNotReadWithoutBound) {
  TestServer server([](const engine::Request&) { return std::vector<int32_t>(2000, 'x'); }, TestOptions(), 5ms);
  TestClient client(server.port());
  client.Send(PostBytes("/v1/completions", R"({"prompt":"a","max_tokens":2000})"));
  ASSERT_TRUE(WaitUntil([&] { return server.backend().num_live() == 1; }));
  const size_t before = ResidentBytes();
  std::thread sender([&] {
    const std::string junk(1 << 20, 'j');
    for (int i = 0; i < 64 && client.Send(junk); ++i) {
    }
  });
  std::this_thread::sleep_for(300ms);
  EXPECT_LT(ResidentBytes(), before + (size_t{30} << 20));
  EXPECT_EQ(server.Get("/health").status, 200);
  server.server().Stop();
  sender.join();
}

TEST(HttpServer, ExpectContinue_IsAnswered) {
  TestServer server("x");
  TestClient client(server.port());
  const std::string_view body = R"({"prompt":"a"})";
  client.Send(fmt::format(
      "POST /v1/completions HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
      body.size()));
  ASSERT_TRUE(client.ReadUntil("HTTP/1.1 100 Continue\r\n\r\n"));
  client.Send(body);
  EXPECT_EQ(client.Read().status, 200);
}

TEST(HttpServer, Head_HasNoBody) {
  TestServer server("x");
  TestClient client(server.port());
  client.Send("HEAD /v1/models HTTP/1.1\r\nhost: t\r\n\r\n" + GetBytes("/version"));
  const Reply head = client.Read(false);
  EXPECT_EQ(head.status, 200);
  EXPECT_NE(head.headers.at("content-length"), "0");
  EXPECT_TRUE(client.Read().json().contains("version"));
}

TEST(HttpServer, AbsoluteTargetAndQuery_AreUnderstood) {
  TestServer server("x");
  EXPECT_EQ(server.Get("http://example.com/health?x=1").status, 200);
  EXPECT_EQ(server.Get("/health?a=b").status, 200);
  EXPECT_EQ(server.Get("/health/").status, 200);
}

// A client that asks for a stream and does not read it: the engine is told to stop, memory stays bounded, others are served.
TEST(HttpServer, SlowReader_IsCutOff) {
  ServerOptions options = ImpatientOptions();
  options.http.queued_bytes_max = 256 << 10;
  options.http.write_timeout = 20s;  // the queue is the limit here
  options.max_model_len = 1 << 20;
  TestServer server([](const engine::Request&) { return std::vector<int32_t>(1'000'000, 'x'); }, std::move(options), 1ms, 200);
  TestClient client(server.port(), 4096);
  client.Send(PostBytes("/v1/completions", R"({"prompt":"a","max_tokens":1000000,"stream":true,"logprobs":5})"));
  ASSERT_TRUE(WaitUntil([&] { return server.backend().num_submitted() == 1; }));
  EXPECT_TRUE(WaitUntil([&] { return server.backend().num_live() == 0; }));
  EXPECT_EQ(server.backend().num_cancels(), 1);
  EXPECT_EQ(server.Get("/health").status, 200);
}

TEST(HttpServer, ReaderThatStops_TimesOut) {
  ServerOptions options = ImpatientOptions();
  options.max_model_len = 1 << 20;
  TestServer server([](const engine::Request&) { return std::vector<int32_t>(1'000'000, 'x'); }, std::move(options), 1ms, 100);
  TestClient client(server.port(), 4096);
  client.Send(PostBytes("/v1/completions", R"({"prompt":"a","max_tokens":1000000,"stream":true,"logprobs":5})"));
  ASSERT_TRUE(WaitUntil([&] { return server.backend().num_live() == 1; }));
  EXPECT_TRUE(WaitUntil([&] { return server.backend().num_live() == 0; }));
}

// The system refuses descriptors for a while: the server goes on when it gets some again.
TEST(HttpServer, NoDescriptorsLeft_IsSurvived) {
  TestServer server("x");
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  std::vector<int> taken;
  rlimit low = before;
  low.rlim_cur = 256;
  setrlimit(RLIMIT_NOFILE, &low);
  TestClient waiting_first(server.port());  // takes the last descriptor of this process' half
  for (int fd = dup(0); fd >= 0; fd = dup(0)) taken.push_back(fd);
  close(taken.back());
  taken.pop_back();
  TestClient waiting(server.port());  // connected by the system, cannot be accepted
  waiting.Send(GetBytes("/health"));
  std::this_thread::sleep_for(150ms);
  for (const int fd : taken) close(fd);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(waiting.Read().status, 200);
}

TEST(HttpServer, PortInUse_IsRefusedByName) {
  TestServer server("x");
  ServerOptions options = TestOptions();
  options.listen.port = server.port();
  // The first server listens, so binding again must fail; the message names the port.
  const auto second = Server::Create(std::move(options), ByteTokenizer(), std::nullopt);
  ASSERT_FALSE(second.has_value());
  EXPECT_NE(second.error().message.find(std::to_string(server.port())), std::string::npos);
  EXPECT_NE(second.error().message.find("--port"), std::string::npos);
}

TEST(HttpServer, UnixSocket_ServesAndCleansUp) {
  const std::string path = fmt::format("/tmp/avocet-test-{}.sock", getpid());
  ServerOptions options = TestOptions();
  options.listen = {.host = "", .port = 0, .uds = path};
  {
    TestServer server("x", options);
    EXPECT_EQ(server.server().url(), "unix:" + path);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    ASSERT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    const std::string request = GetBytes("/health");
    ASSERT_EQ(send(fd, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
    char answer[64] = {};
    ASSERT_GT(recv(fd, answer, sizeof(answer) - 1, 0), 0);
    EXPECT_TRUE(std::string_view(answer).starts_with("HTTP/1.1 200"));
    close(fd);
    EXPECT_FALSE(Server::Create(options, ByteTokenizer(), std::nullopt).has_value()) << "two servers on one socket";
  }
  EXPECT_NE(access(path.c_str(), F_OK), 0) << "the socket file is left over";
}

TEST(HttpServer, Stop_WithEverythingInFlight) {
  for (int round = 0; round < 5; ++round) {
    TestServer server([](const engine::Request&) { return std::vector<int32_t>(2000, 'x'); }, TestOptions(), 1ms);
    std::vector<std::unique_ptr<TestClient>> clients;
    for (int i = 0; i < 20; ++i) {
      clients.push_back(std::make_unique<TestClient>(server.port()));
      clients.back()->Send(
          PostBytes("/v1/completions", fmt::format(R"({{"prompt":"{}","max_tokens":2000,"stream":{}}})",
                                                   std::string(i % 3 == 0 ? 30'000 : 5, 'a').substr(0, 1900), i % 2 == 0)));
    }
    server.server().Stop();
  }
}

// 64 clients at once, a third of which leave at a random moment: every answer is right, and nothing is left over.
TEST(HttpServer, ParallelClientsWithRandomCancels_LeaveNothingBehind) {
  const uint32_t seed = 20261201;
  TestServer server(
      [](const engine::Request& request) {
        std::vector<int32_t> ids(request.prompt.begin(), request.prompt.end());
        for (int i = 0; i < 3; ++i) ids.insert(ids.end(), request.prompt.begin(), request.prompt.end());
        ids.push_back(kEos);
        return ids;
      },
      TestOptions(), 200us);
  std::vector<std::thread> threads;
  std::atomic<int> num_answers{0};
  for (uint32_t t = 0; t < 64; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(seed + t);
      for (int round = 0; round < 6; ++round) {
        const std::string prompt = fmt::format("client {} round {} ", t, round);
        const std::string expected = prompt + prompt + prompt + prompt;
        const bool is_stream = random() % 2 == 0;
        TestClient client(server.port());
        client.Send(PostBytes("/v1/completions", fmt::format(R"({{"prompt":"{}","max_tokens":500,"stream":{}}})", prompt, is_stream)));
        if (random() % 3 == 0) {
          std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
          random() % 2 == 0 ? client.Reset() : client.Close();
          continue;
        }
        const Reply reply = client.Read();
        ASSERT_EQ(reply.status, 200);
        std::string text;
        if (is_stream) {
          const auto events = reply.events();
          for (size_t i = 0; i + 1 < events.size(); ++i) text += Json::parse(events[i])["choices"][0]["text"].get<std::string>();
        } else {
          text = reply.json()["choices"][0]["text"];
        }
        EXPECT_EQ(text, expected) << "seed " << seed;
        ++num_answers;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(num_answers, 100);
  EXPECT_TRUE(WaitUntil([&] { return server.backend().num_live() == 0; }));
  EXPECT_TRUE(WaitUntil([&] {
    return server.Get("/metrics").body.find("vllm:num_requests_running{engine=\"0\",model_name=\"test\"} 0") != std::string::npos;
  }));
  server.server().Drain(Clock::now() + 5s);
}

}  // namespace
}  // namespace avocet::server
