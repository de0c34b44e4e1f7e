// Routes: which path and method does what, and what every answer has in common (keys, CORS, request ids, root path; serving.md 2.1 to
// 2.5, 2.13). Runs on io threads; long bodies go to the helpers and come back.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/active_requests.h"
#include "server/http_server.h"
#include "server/prepared_request.h"

namespace avocet::server {

class ApiHandler {
 public:
  // active: one per io thread. All are borrowed.
  ApiHandler(const ServerParts& parts, const Preparer& preparer, std::vector<std::unique_ptr<ActiveRequests>>& active);

  // The hooks of the HTTP server.
  void Handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  void Answered(const HttpRequest& head, int status) const;

  // New requests get 503 from here on; /health says so too.
  void StartDraining() { is_draining_ = true; }

  // The paths that anybody may use although there are keys.
  std::string OpenRoutes() const;

 private:
  struct Route;
  struct Call {
    HttpRequest request;
    std::string path;  // of the request, without the root path
    std::shared_ptr<HttpExchange> exchange;
    std::string request_id;  // the client's if it is usable, else random
    ErrorStyle error_style = ErrorStyle::kOpenai;
  };
  using Method = void (ApiHandler::*)(Call);
  using Answer = ApiResult<Json> (Preparer::*)(const Json&) const;
  using Prepare = ApiResult<PreparedRequest> (Preparer::*)(const Json&) const;

  static std::span<const Route> Routes();
  const Route* FindRoute(std::string_view path) const;
  bool IsOffered(const Route& route) const;
  std::string_view WithoutRootPath(std::string_view path) const;
  bool NeedsKey(std::string_view path) const;
  bool IsAuthorized(const HttpRequest& request, std::string_view path) const;
  void AddCorsHeaders(const HttpRequest& request, HttpExchange& exchange) const;
  void AnswerOptions(const HttpRequest& request, const Route& route, HttpExchange& exchange) const;

  void Health(Call call);
  void Version(Call call);
  void ShowMetrics(Call call);
  void Load(Call call);
  void Models(Call call);
  void OneModel(Call call);
  void Completions(Call call);
  void ChatCompletions(Call call);
  void Messages(Call call);
  void Responses(Call call);
  void Invocations(Call call);
  void CountTokens(Call call);
  void RenderChat(Call call);
  void RenderCompletion(Call call);
  void OneResponse(Call call);
  void CancelResponse(Call call);
  void TokenizerInfo(Call call);
  void ServerInfo(Call call);
  void OpenApi(Call call);
  void Tokenize(Call call);
  void Detokenize(Call call);

  Json ModelCard(const std::string& name) const;
  void Generate(Call call, Prepare prepare);
  void AnswerFromBody(Call call, Answer answer);
  enum class Work : uint8_t { kShort, kLong };
  Work WorkOf(const HttpRequest& request) const;
  // Runs `job` here if the work is short, on a helper if not; then what it returns on the io thread.
  void RunJob(Work work, const std::shared_ptr<HttpExchange>& exchange, std::move_only_function<Task()> job);
  static ApiResult<Json> ParseBody(const HttpRequest& request);
  ApiResult<PreparedRequest> ParseAndPrepare(const HttpRequest& request, Prepare prepare) const;
  void LogRequest(const PreparedRequest& request, std::string_view id) const;

  const ServerParts& parts_;
  const Preparer& preparer_;
  std::vector<std::unique_ptr<ActiveRequests>>& active_;
  std::vector<std::array<unsigned char, 32>> key_hashes_;  // SHA-256, so that comparing takes the same time for every key
  std::atomic<bool> is_draining_{false};
};

}  // namespace avocet::server
