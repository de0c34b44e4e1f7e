#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <random>
#include <sstream>

#include "base/log.h"
#include "base/printable.h"
#include "cli/bench.h"

namespace avocet::cli {
namespace {

constexpr int32_t kDefaultInputLen = 1024;
constexpr int32_t kDefaultOutputLen = 128;
// The reference leaves out conversations that are too short to say anything or too long for a short context.
constexpr size_t kShareGptTokensMin = 4;
constexpr size_t kShareGptPromptMax = 1024;
constexpr size_t kShareGptTotalMax = 2048;
constexpr std::streamoff kDatasetBytesMax = std::streamoff{4} << 30;

std::vector<BenchRequest> RandomRequests(const Options& options, int32_t vocab_size) {
  std::mt19937_64 random(static_cast<uint64_t>(options.seed));
  std::uniform_int_distribution<int32_t> ids(0, vocab_size - 1);
  const auto draw_length = [&](int32_t length) {
    const double low = length * (1 - options.random_range_ratio);
    const double high = length * (1 + options.random_range_ratio);
    return std::uniform_int_distribution<int32_t>(std::max(1, static_cast<int32_t>(std::floor(low))),
                                                  static_cast<int32_t>(std::ceil(high)))(random);
  };
  std::vector<int32_t> prefix(static_cast<size_t>(options.prefix_len));
  for (int32_t& id : prefix) id = ids(random);
  std::vector<BenchRequest> requests(static_cast<size_t>(options.num_prompts));
  for (BenchRequest& request : requests) {
    const int32_t input_len = draw_length(options.input_len.value_or(kDefaultInputLen));
    request.output_len = draw_length(options.output_len.value_or(kDefaultOutputLen));
    request.prompt = prefix;
    for (int32_t i = 0; i < input_len; ++i) request.prompt.push_back(ids(random));
  }
  return requests;
}

Result<Json> ReadJsonFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Fail(Errc::kNotFound, "cannot read the data set {}", Printable(path));
  file.seekg(0, std::ios::end);
  if (file.tellg() > kDatasetBytesMax) return Fail(Errc::kInvalidArgument, "the data set {} is larger than 4 GiB", Printable(path));
  file.seekg(0);
  std::ostringstream text;
  text << file.rdbuf();
  Result<Json> json = ParseJson(text.str());
  if (!json) return Fail(Errc::kCorrupt, "the data set {} is no valid JSON", Printable(path));
  if (!json->is_array()) return Fail(Errc::kCorrupt, "the data set {} holds no JSON list", Printable(path));
  return json;
}

// Text of turn `index` of a conversation; empty if there is none.
std::string TurnText(const Json& entry, size_t index) {
  if (!entry.is_object()) return {};
  const auto turns = entry.find("conversations");
  if (turns == entry.end() || !turns->is_array() || turns->size() < 2 || !(*turns)[index].is_object()) return {};
  const auto value = (*turns)[index].find("value");
  return value != (*turns)[index].end() && value->is_string() ? value->get<std::string>() : std::string();
}

Result<std::vector<BenchRequest>> ShareGptRequests(const Options& options, const Assembly& assembly) {
  if (assembly.tokenizer == nullptr)
    return Fail(Errc::kInvalidArgument, "--dataset-name sharegpt needs the tokenizer; leave out --skip-tokenizer-init");
  if (options.dataset_path.empty()) return Fail(Errc::kInvalidArgument, "--dataset-name sharegpt needs --dataset-path");
  AVOCET_TRY(Json entries, ReadJsonFile(options.dataset_path));
  std::shuffle(entries.begin(), entries.end(), std::mt19937_64(static_cast<uint64_t>(options.seed)));
  std::vector<BenchRequest> requests;
  for (const Json& entry : entries) {
    if (requests.size() == static_cast<size_t>(options.num_prompts)) break;
    BenchRequest request;
    request.prompt = assembly.tokenizer->Encode(TurnText(entry, 0));
    const size_t recorded = assembly.tokenizer->Encode(TurnText(entry, 1)).size();
    const size_t output_len = options.output_len ? static_cast<size_t>(*options.output_len) : recorded;
    const bool is_short = request.prompt.size() < kShareGptTokensMin || output_len < kShareGptTokensMin;
    if (is_short || request.prompt.size() > kShareGptPromptMax || request.prompt.size() + output_len > kShareGptTotalMax) continue;
    request.output_len = static_cast<int32_t>(output_len);
    requests.push_back(std::move(request));
  }
  if (requests.empty()) return Fail(Errc::kInvalidArgument, "{} has no conversation of a usable length", Printable(options.dataset_path));
  return requests;
}

Result<std::vector<BenchRequest>> MakeRequests(const Options& options, const Assembly& assembly) {
  const bool is_sharegpt = options.dataset_name == "sharegpt" || (options.dataset_name.empty() && !options.dataset_path.empty());
  if (is_sharegpt) return ShareGptRequests(options, assembly);
  return RandomRequests(options, EngineOptionsFor(options, assembly).vocab_size);
}

Result<void> Run(const CommandLine& line, const Environment& environment) {
  Options options = line.options;
  if (options.max_model_len == 0) options.max_model_len = -1;
  AVOCET_TRY(const std::unique_ptr<Assembly> assembly, AssembleForBench(line, options, environment));
  AVOCET_TRY(const std::vector<BenchRequest> requests, MakeRequests(options, *assembly));
  AVOCET_TRY(const std::unique_ptr<BenchEngine> bench, BenchEngine::Create(options, *assembly));
  AVOCET_TRY(const BenchRun run, bench->Run(requests, options.n));

  int64_t num_prompt_tokens = 0;
  for (const BenchRequest& request : requests) num_prompt_tokens += static_cast<int64_t>(request.prompt.size());
  const int64_t num_tokens = num_prompt_tokens + run.num_output_tokens;
  const double requests_per_second = static_cast<double>(requests.size()) / run.seconds;
  const double tokens_per_second = static_cast<double>(num_tokens) / run.seconds;
  fmt::print("Throughput: {:.2f} requests/s, {:.2f} total tokens/s, {:.2f} output tokens/s\n", requests_per_second, tokens_per_second,
             static_cast<double>(run.num_output_tokens) / run.seconds);
  fmt::print("Total num prompt tokens:  {}\nTotal num output tokens:  {}\n", num_prompt_tokens, run.num_output_tokens);
  if (options.output_json.empty()) return {};
  Json result = Json::object();
  result["elapsed_time"] = run.seconds;
  result["num_requests"] = requests.size();
  result["total_num_tokens"] = num_tokens;
  result["requests_per_second"] = requests_per_second;
  result["tokens_per_second"] = tokens_per_second;
  return WriteJsonFile(options.output_json, result);
}

}  // namespace

int BenchThroughput(const CommandLine& line, const Environment& environment) {
  const Result<void> done = Run(line, environment);
  if (done) return 0;
  LogError("{}", done.error().message);
  return 1;
}

}  // namespace avocet::cli
