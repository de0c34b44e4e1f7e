#include "server/api_handler.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/printable.h"
#include "server/openapi.h"
#include "server/random_id.h"

namespace avocet::server {

namespace {

constexpr std::string_view kJsonType = "application/json";
constexpr std::string_view kModelPrefix = "/v1/models/";
constexpr std::string_view kResponsePrefix = "/v1/responses/";

std::array<unsigned char, 32> Hash(std::string_view text) {
  std::array<unsigned char, 32> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return digest;
}

// A client's id goes into headers, bodies and the log: short and printable, or not at all.
bool IsUsableId(std::string_view id) {
  return !id.empty() && id.size() <= limits::kRequestIdBytesMax &&
         std::ranges::all_of(id, [](char c) { return c > ' ' && c <= '~' && c != '"' && c != '\\'; });
}

bool IsGuarded(std::string_view path) {
  return path.starts_with("/v1") || path.starts_with("/v2") || path.starts_with("/inference");
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

// "/v1/models/{name}" fits any name, a model's with slashes too; a name in the middle ends at the next slash.
bool FitsPattern(std::string_view path, std::string_view pattern) {
  const size_t open = pattern.find('{');
  if (open == std::string_view::npos) return path == pattern;
  const size_t close = pattern.find('}');
  const std::string_view before = pattern.substr(0, open);
  const std::string_view after = pattern.substr(close + 1);
  if (path.size() <= before.size() + after.size() || !path.starts_with(before) || !path.ends_with(after)) return false;
  const std::string_view name = path.substr(before.size(), path.size() - before.size() - after.size());
  return before == kModelPrefix || name.find('/') == std::string_view::npos;
}

// The fence of everything that reads a body: running out of memory is an answer of its own, not the end of the process.
template <typename T, typename Function>
ApiResult<T> Fenced(Function&& function) {
  try {
    return function();
  } catch (const std::exception& error) {
    LogError("a request could not be read: {}", error.what());
    return Refuse(500, "", "the request could not be read: {}", error.what());
  }
}

// Words of requests whose grammar has to be compiled, which may take as long as a long body.
bool MayNeedGrammar(std::string_view body) {
  return std::ranges::any_of(
      std::to_array<std::string_view>({"response_format", "structured_outputs", "guided_", "tool_choice", "output_format"}),
      [body](std::string_view word) { return body.find(word) != std::string_view::npos; });
}

void Respond(HttpExchange& exchange, const ApiError& error, ErrorStyle style = ErrorStyle::kOpenai) {
  exchange.Respond(error.status, kJsonType, ErrorBodyFor(style, error));
}

ApiError NoResponse(std::string_view id) {
  return {404, std::string(ErrorType(404)), fmt::format("the response {} does not exist", Printable(id)), "response_id"};
}

}  // namespace

struct ApiHandler::Route {
  enum class Methods : uint8_t { kGet, kPost, kGetAndPost };

  std::string_view path;
  Methods methods;
  Method method;

  std::string_view MethodList() const { return methods == Methods::kGet ? "GET" : methods == Methods::kPost ? "POST" : "GET, POST"; }
  bool Allows(std::string_view name) const {
    return (methods != Methods::kPost && (name == "GET" || name == "HEAD")) || (methods != Methods::kGet && name == "POST");
  }
};

std::span<const ApiHandler::Route> ApiHandler::Routes() {
  using enum Route::Methods;
  static constexpr auto kRoutes = std::to_array<Route>({
      {"/health", kGet, &ApiHandler::Health},
      {"/ping", kGetAndPost, &ApiHandler::Health},
      {"/version", kGet, &ApiHandler::Version},
      {"/metrics", kGet, &ApiHandler::ShowMetrics},
      {"/load", kGet, &ApiHandler::Load},
      {"/v1/models", kGet, &ApiHandler::Models},
      {"/v1/models/{name}", kGet, &ApiHandler::OneModel},
      {"/v1/completions", kPost, &ApiHandler::Completions},
      {"/v1/chat/completions", kPost, &ApiHandler::ChatCompletions},
      {"/v1/chat/completions/render", kPost, &ApiHandler::RenderChat},
      {"/v1/completions/render", kPost, &ApiHandler::RenderCompletion},
      {"/v1/messages", kPost, &ApiHandler::Messages},
      {"/v1/messages/count_tokens", kPost, &ApiHandler::CountTokens},
      {"/v1/responses", kPost, &ApiHandler::Responses},
      {"/v1/responses/{id}", kGet, &ApiHandler::OneResponse},
      {"/v1/responses/{id}/cancel", kPost, &ApiHandler::CancelResponse},
      {"/invocations", kPost, &ApiHandler::Invocations},
      {"/tokenizer_info", kGet, &ApiHandler::TokenizerInfo},
      {"/openapi.json", kGet, &ApiHandler::OpenApi},
      {"/server_info", kGet, &ApiHandler::ServerInfo},
      {"/tokenize", kPost, &ApiHandler::Tokenize},
      {"/detokenize", kPost, &ApiHandler::Detokenize},
  });
  return kRoutes;
}

bool ApiHandler::IsOffered(const Route& route) const {
  if (route.method == &ApiHandler::TokenizerInfo) return parts_.options->enable_tokenizer_info;
  if (route.method == &ApiHandler::ServerInfo) return parts_.options->dev_mode;
  if (route.method == &ApiHandler::OpenApi) return parts_.options->enable_docs;
  return true;
}

const ApiHandler::Route* ApiHandler::FindRoute(std::string_view path) const {
  for (const Route& route : Routes()) {
    if (FitsPattern(path, route.path) && IsOffered(route)) return &route;
  }
  return nullptr;
}

ApiHandler::ApiHandler(const ServerParts& parts, const Preparer& preparer, std::vector<std::unique_ptr<ActiveRequests>>& active)
    : parts_(parts), preparer_(preparer), active_(active) {
  for (const std::string& key : parts.options->api_keys) key_hashes_.push_back(Hash(key));
}

std::string_view ApiHandler::WithoutRootPath(std::string_view path) const {
  const std::string_view root = parts_.options->root_path;
  if (!root.empty() && path.starts_with(root)) {
    const std::string_view rest = path.substr(root.size());
    if (rest.empty() || rest.front() == '/') path = rest.empty() ? "/" : rest;
  }
  if (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return path;
}

bool ApiHandler::NeedsKey(std::string_view path) const {
  return parts_.options->require_key_everywhere ? path != "/health" && path != "/ping" : IsGuarded(path);
}

bool ApiHandler::IsAuthorized(const HttpRequest& request, std::string_view path) const {
  if (key_hashes_.empty() || !NeedsKey(path)) return true;
  const std::string_view header = request.Header("authorization");
  const size_t space = header.find(' ');
  const bool is_bearer = space != std::string_view::npos && Lower(header.substr(0, space)) == "bearer";
  // Anthropic's clients present their key in a header of its own.
  const std::string_view key = is_bearer ? header.substr(space + 1) : request.Header("x-api-key");
  if (key.empty()) return false;
  const auto hash = Hash(key);
  int matches = 0;  // every key is compared, whatever the outcome
  for (const auto& known : key_hashes_) matches |= CRYPTO_memcmp(known.data(), hash.data(), hash.size()) == 0 ? 1 : 0;
  return matches != 0;
}

void ApiHandler::AddCorsHeaders(const HttpRequest& request, HttpExchange& exchange) const {
  const CorsOptions& cors = parts_.options->cors;
  const std::string_view origin = request.Header("origin");
  if (origin.empty() || cors.allowed_origins.empty()) return;
  const bool allows_any = std::ranges::find(cors.allowed_origins, "*") != cors.allowed_origins.end();
  if (!allows_any && std::ranges::find(cors.allowed_origins, origin) == cors.allowed_origins.end()) return;
  // With credentials the browser wants the origin itself.
  exchange.AddHeader("access-control-allow-origin", allows_any && !cors.allow_credentials ? "*" : std::string(origin));
  exchange.AddHeader("vary", "origin");
  if (cors.allow_credentials) exchange.AddHeader("access-control-allow-credentials", "true");
}

void ApiHandler::AnswerOptions(const HttpRequest& request, const Route& route, HttpExchange& exchange) const {
  const CorsOptions& cors = parts_.options->cors;
  const bool is_preflight = !request.Header("origin").empty() && !request.Header("access-control-request-method").empty();
  if (is_preflight && !cors.allowed_origins.empty()) {
    const auto list = [](const std::vector<std::string>& allowed, std::string_view if_any) {
      const bool allows_any = std::ranges::find(allowed, "*") != allowed.end();
      return allows_any ? std::string(if_any) : fmt::format("{}", fmt::join(allowed, ", "));
    };
    exchange.AddHeader("access-control-allow-methods", list(cors.allowed_methods, "GET, POST, HEAD, OPTIONS"));
    exchange.AddHeader("access-control-allow-headers", list(cors.allowed_headers, request.Header("access-control-request-headers")));
    exchange.AddHeader("access-control-max-age", "600");
  } else {
    exchange.AddHeader("allow", fmt::format("{}, OPTIONS", route.MethodList()));
  }
  exchange.Respond(204, "", "");
}

void ApiHandler::Handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  Call call{std::move(request), {}, std::move(exchange), {}};
  call.path = std::string(WithoutRootPath(call.request.path));
  HttpExchange& answer = *call.exchange;
  AddCorsHeaders(call.request, answer);
  const std::string_view given_id = call.request.Header("x-request-id");
  const bool has_id = IsUsableId(given_id);
  if (has_id) call.request_id = given_id;
  if (parts_.options->enable_request_id_headers) answer.AddHeader("x-request-id", has_id ? call.request_id : RandomHex());

  const Route* route = FindRoute(call.path);
  const std::string& method = call.request.method;
  if (route == nullptr) {
    Respond(answer, {404, {}, fmt::format("there is no {}", Printable(call.path)), {}});
  } else if (method == "OPTIONS") {
    AnswerOptions(call.request, *route, answer);
  } else if (!IsAuthorized(call.request, call.path)) {
    answer.AddHeader("www-authenticate", "Bearer");
    answer.Respond(401, kJsonType, R"({"error":"Unauthorized"})");
  } else if (!route->Allows(method)) {
    answer.AddHeader("allow", fmt::format("{}, OPTIONS", route->MethodList()));
    Respond(answer, {405, {}, fmt::format("{} is for {}", route->path, route->MethodList()), {}});
  } else {
    (this->*route->method)(std::move(call));
  }
}

void ApiHandler::Answered(const HttpRequest& head, int status) const {
  const ServerOptions& options = *parts_.options;
  const std::string_view path = WithoutRootPath(head.path);
  const Route* route = FindRoute(path);
  const double seconds = std::chrono::duration<double>(Clock::now() - head.arrival).count();
  parts_.metrics->ObserveHttp(route == nullptr ? "other" : std::string_view(head.method), route == nullptr ? "none" : route->path, status,
                              seconds);
  if (!options.access_log || std::ranges::find(options.access_log_skips, path) != options.access_log_skips.end()) return;
  LogInfo("{} - \"{} {}\" {} {}", head.peer, Printable(head.method), Printable(head.path), status, ReasonPhrase(status));
}

std::string ApiHandler::OpenRoutes() const {
  std::string list;
  for (const Route& route : Routes()) {
    if (IsOffered(route) && !NeedsKey(route.path)) list += fmt::format("{}{}", list.empty() ? "" : ", ", route.path);
  }
  return list;
}

void ApiHandler::Health(Call call) {
  if (is_draining_ || !parts_.backend->is_healthy()) {
    Respond(*call.exchange, {503, {}, is_draining_ ? "the server is shutting down" : "the engine does not run", {}});
  } else {
    call.exchange->Respond(200, "", "");
  }
}

void ApiHandler::Version(Call call) {
  call.exchange->Respond(200, kJsonType, DumpJson(Json{{"version", AVOCET_VERSION}}));
}

void ApiHandler::ShowMetrics(Call call) {
  const bool has_stats = parts_.options->log_stats;
  call.exchange->Respond(200, "text/plain; version=0.0.4; charset=utf-8",
                         parts_.metrics->Serialize(has_stats ? std::optional(parts_.backend->stats()) : std::nullopt));
}

void ApiHandler::Load(Call call) {
  int64_t num_active = 0;
  if (parts_.options->enable_load_tracking) {
    for (const auto& active : active_) num_active += active->num_active();
  }
  call.exchange->Respond(200, kJsonType, DumpJson(Json{{"server_load", num_active}}));
}

Json ApiHandler::ModelCard(const std::string& name) const {
  const int64_t now = static_cast<int64_t>(std::time(nullptr));
  Json permission = Json::object({{"id", "modelperm-" + RandomHex()},
                                  {"object", "model_permission"},
                                  {"created", now},
                                  {"allow_create_engine", false},
                                  {"allow_sampling", true},
                                  {"allow_logprobs", true},
                                  {"allow_search_indices", false},
                                  {"allow_view", true},
                                  {"allow_fine_tuning", false},
                                  {"organization", "*"},
                                  {"group", nullptr},
                                  {"is_blocking", false}});
  return Json::object({{"id", name},
                       {"object", "model"},
                       {"created", now},
                       {"owned_by", "vllm"},  // clients and benchmarks compare with it
                       {"root", parts_.options->model_root},
                       {"parent", nullptr},
                       {"max_model_len", parts_.options->max_model_len},
                       {"permission", Json::array({std::move(permission)})}});
}

void ApiHandler::Models(Call call) {
  Json cards = Json::array();
  for (const std::string& name : parts_.options->served_model_names) cards.push_back(ModelCard(name));
  call.exchange->Respond(200, kJsonType, DumpJson(Json::object({{"object", "list"}, {"data", std::move(cards)}})));
}

void ApiHandler::OneModel(Call call) {
  const std::string name = call.path.substr(kModelPrefix.size());
  if (auto known = CheckModelName(name, *parts_.options); !known) {
    Respond(*call.exchange, known.error());
  } else {
    call.exchange->Respond(200, kJsonType, DumpJson(ModelCard(name)));
  }
}

void ApiHandler::Completions(Call call) {
  Generate(std::move(call), &Preparer::PrepareCompletion);
}
void ApiHandler::ChatCompletions(Call call) {
  Generate(std::move(call), &Preparer::PrepareChat);
}
void ApiHandler::Messages(Call call) {
  call.error_style = ErrorStyle::kAnthropic;
  Generate(std::move(call), &Preparer::PrepareMessages);
}
void ApiHandler::Responses(Call call) {
  Generate(std::move(call), &Preparer::PrepareResponse);
}
void ApiHandler::Invocations(Call call) {
  Generate(std::move(call), &Preparer::PrepareInvocation);
}
void ApiHandler::CountTokens(Call call) {
  call.error_style = ErrorStyle::kAnthropic;
  AnswerFromBody(std::move(call), &Preparer::CountTokens);
}
void ApiHandler::RenderChat(Call call) {
  AnswerFromBody(std::move(call), &Preparer::RenderedChat);
}
void ApiHandler::RenderCompletion(Call call) {
  AnswerFromBody(std::move(call), &Preparer::RenderedPrompts);
}

void ApiHandler::OneResponse(Call call) {
  const std::string id = call.path.substr(kResponsePrefix.size());
  const auto stored = parts_.responses == nullptr ? std::nullopt : parts_.responses->Get(id);
  if (stored.has_value()) {
    call.exchange->Respond(200, kJsonType, stored->body);
  } else {
    Respond(*call.exchange, NoResponse(id));
  }
}

// What runs cannot be named by others before it has ended, and what has ended cannot be cancelled.
void ApiHandler::CancelResponse(Call call) {
  std::string id = call.path.substr(kResponsePrefix.size());
  id.resize(id.find('/'));
  const bool is_known = parts_.responses != nullptr && parts_.responses->Get(id).has_value();
  Respond(*call.exchange,
          is_known ? ApiError{400, std::string(kRequestErrorType),
                              fmt::format("the response {} has ended; to cancel one that runs, close its connection", Printable(id)),
                              "response_id"}
                   : NoResponse(id));
}

void ApiHandler::TokenizerInfo(Call call) {
  call.exchange->Respond(200, kJsonType, DumpJson(preparer_.TokenizerInfo()));
}

void ApiHandler::ServerInfo(Call call) {
  Json info = Json::object();
  for (const auto& [name, value] : parts_.options->server_info) info[name] = value;
  call.exchange->Respond(200, kJsonType, DumpJson(Json::object({{"version", AVOCET_VERSION}, {"options", std::move(info)}})));
}

void ApiHandler::OpenApi(Call call) {
  std::vector<ApiRoute> routes;
  for (const Route& route : Routes()) {
    if (IsOffered(route)) routes.push_back({route.path, route.MethodList()});
  }
  call.exchange->Respond(200, kJsonType, DumpJson(OpenApiDocument(routes, AVOCET_VERSION)));
}

void ApiHandler::Tokenize(Call call) {
  AnswerFromBody(std::move(call), &Preparer::Tokenize);
}
void ApiHandler::Detokenize(Call call) {
  AnswerFromBody(std::move(call), &Preparer::Detokenize);
}

ApiResult<Json> ApiHandler::ParseBody(const HttpRequest& request) {
  std::string type = Lower(request.Header("content-type"));
  type.resize(std::min(type.find(';'), type.size()));
  type.resize(type.find_last_not_of(" \t") + 1);
  auto body = type == kJsonType
                  ? ParseJson(request.body, "the body")
                  : Result<Json>(Fail(Errc::kInvalidArgument, "content-type \"{}\" is not application/json", Printable(type)));
  if (body.has_value()) return *std::move(body);
  return std::unexpected(ApiError{400, std::string(kSchemaErrorType), std::move(body).error().message, {}});
}

ApiResult<PreparedRequest> ApiHandler::ParseAndPrepare(const HttpRequest& request, Prepare prepare) const {
  return Fenced<PreparedRequest>([&]() -> ApiResult<PreparedRequest> {
    AVOCET_TRY(const Json body, ParseBody(request));
    return (preparer_.*prepare)(body);
  });
}

ApiHandler::Work ApiHandler::WorkOf(const HttpRequest& request) const {
  // A template that came with the request may take its time, however short the body is.
  const bool is_long = request.body.size() >= limits::kHelperBodyBytesMin || parts_.options->trust_request_chat_template;
  return is_long || MayNeedGrammar(request.body) ? Work::kLong : Work::kShort;
}

void ApiHandler::RunJob(Work work, const std::shared_ptr<HttpExchange>& exchange, std::move_only_function<Task()> job) {
  if (work == Work::kShort) {
    job()();
    return;
  }
  if (!parts_.helpers->Post([exchange, job = std::move(job)]() mutable { exchange->Post(job()); })) {
    Respond(*exchange, {503, {}, "too many long requests wait to be read; try again later", {}});
  }
}

void ApiHandler::Generate(Call call, Prepare prepare) {
  if (is_draining_) {
    Respond(*call.exchange, {503, {}, "the server is shutting down", {}}, call.error_style);
    return;
  }
  const std::shared_ptr<HttpExchange> exchange = call.exchange;
  const Work work = WorkOf(call.request);
  RunJob(work, exchange, [this, call = std::move(call), prepare]() mutable -> Task {
    ApiResult<PreparedRequest> prepared = ParseAndPrepare(call.request, prepare);
    return [this, exchange = std::move(call.exchange), style = call.error_style, prepared = std::move(prepared),
            request_id = std::move(call.request_id), arrival = call.request.arrival]() mutable {
      if (!exchange->is_open()) return;
      if (!prepared.has_value()) {
        Respond(*exchange, prepared.error(), style);
        return;
      }
      if (request_id.empty()) request_id = IsUsableId(prepared->fields.request_id) ? prepared->fields.request_id : RandomHex();
      LogRequest(*prepared, request_id);
      ActiveRequests& active = *active_[static_cast<size_t>(exchange->io_thread())];
      active.Start(std::make_unique<PreparedRequest>(*std::move(prepared)), std::move(request_id), arrival, exchange);
    };
  });
}

void ApiHandler::AnswerFromBody(Call call, Answer answer) {
  const std::shared_ptr<HttpExchange> exchange = call.exchange;
  const Work work = WorkOf(call.request);
  RunJob(work, exchange, [this, call = std::move(call), answer]() mutable -> Task {
    const ApiResult<Json> result = Fenced<Json>([&]() -> ApiResult<Json> {
      AVOCET_TRY(const Json body, ParseBody(call.request));
      return (preparer_.*answer)(body);
    });
    return [exchange = std::move(call.exchange), status = result.has_value() ? 200 : result.error().status,
            body = result.has_value() ? DumpJson(*result) : ErrorBodyFor(call.error_style, result.error())]() mutable {
      exchange->Respond(status, kJsonType, std::move(body));
    };
  });
}

void ApiHandler::LogRequest(const PreparedRequest& request, std::string_view id) const {
  const ServerOptions& options = *parts_.options;
  if (!options.log_requests) return;
  const PreparedPrompt& prompt = request.prompts.front();
  const engine::SamplingParams& sampling = request.sampling;
  LogInfo(
      "Received request {}: prompt: \"{}\", {} tokens{}, n: {}, temperature: {}, top_p: {}, top_k: {}, min_p: {}, max_tokens: {}, stream: "
      "{}",
      id, Printable(prompt.text, options.log_text_bytes_max.value_or(prompt.text.size())), prompt.ids.size(),
      request.prompts.size() > 1 ? fmt::format(" (and {} prompts more)", request.prompts.size() - 1) : std::string(), request.fields.n,
      sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p, prompt.max_tokens, request.fields.is_stream);
}

}  // namespace avocet::server
