#include "server/sampling_fields.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "base/limits.h"

namespace avocet::server {

namespace {

constexpr double kLogitBiasMax = 100;  // serving.md 2.6
constexpr double kGreedyTemperature = 1e-5;

// Fields that ask for something this server does not do yet. A value that asks for nothing (null, false, {}) passes.
struct NotOffered {
  std::string_view name;
  std::string_view what;
};
constexpr auto kNotOffered = std::to_array<NotOffered>({
    {"use_beam_search", "beam search"},
    {"logprob_token_ids", "logprobs of chosen tokens"},
    {"repetition_detection", "detection of repetition"},
    {"prompt_embeds", "prompts as embeddings"},
});

bool AsksForNothing(const Json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (!value.is_object()) return false;
  return std::ranges::all_of(value, [](const Json& member) { return member.is_null(); });
}

ApiResult<void> RefuseNotOffered(FieldReader& reader) {
  for (const NotOffered& field : kNotOffered) {
    const Json* value = reader.Find(field.name);
    if (value == nullptr || AsksForNothing(*value)) continue;
    return Refuse(501, std::string(field.name), "{}: {} is not offered yet", field.name, field.what);
  }
  return {};
}

std::vector<std::string> ReadStops(FieldReader& reader) {
  const Json* value = reader.Find("stop");
  if (value == nullptr) return {};
  std::vector<std::string> stops;
  if (value->is_string()) {
    stops.push_back(value->get<std::string>());
  } else if (value->is_array()) {
    stops = reader.Strings("stop").value_or(std::vector<std::string>{});
  } else {
    reader.Expected("stop", "a string or a list of strings", *value);
  }
  if (stops.size() > static_cast<size_t>(limits::kStopStringsMax)) {
    reader.NotAllowed("stop", fmt::format("{} stop strings, at most {}", stops.size(), limits::kStopStringsMax));
    return {};
  }
  for (const std::string& stop : stops) {
    if (stop.empty()) reader.NotAllowed("stop", "a stop string is empty");
    if (stop.size() > limits::kStopStringBytesMax) {
      reader.NotAllowed("stop", fmt::format("a stop string has {} bytes, at most {}", stop.size(), limits::kStopStringBytesMax));
    }
  }
  return stops;
}

std::vector<std::pair<int32_t, float>> ReadLogitBias(FieldReader& reader, int32_t vocab_size) {
  std::vector<std::pair<int32_t, float>> biases;
  const Json* object = reader.Object("logit_bias");
  if (object == nullptr) return biases;
  for (const auto& [key, value] : object->items()) {
    const std::string name = "logit_bias." + key.substr(0, 32);
    int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (end != key.data() + key.size() || (error != std::errc() && error != std::errc::result_out_of_range)) {
      reader.Expected(name, "a token id as key", Json(key));
      return {};
    }
    if (error != std::errc() || id < 0 || id >= vocab_size) {
      reader.NotAllowed(name, fmt::format("token id {} is out of the vocabulary of {}", key, vocab_size));
      return {};
    }
    if (!value.is_number()) {
      reader.Expected(name, "a number", value);
      return {};
    }
    biases.emplace_back(id, static_cast<float>(std::clamp(value.get<double>(), -kLogitBiasMax, kLogitBiasMax)));
  }
  return biases;
}

void ReadNumbers(FieldReader& reader, SamplingFields& fields) {
  fields.temperature = reader.Number("temperature", {.min = 0});
  fields.top_p = reader.Number("top_p", {.min = 0, .max = 1, .min_is_allowed = false});
  fields.min_p = reader.Number("min_p", {.min = 0, .max = 1});
  fields.repetition_penalty = reader.Number("repetition_penalty", {.min = 0, .min_is_allowed = false});
  fields.presence_penalty = reader.Number("presence_penalty", {.min = -2, .max = 2}).value_or(0);
  fields.frequency_penalty = reader.Number("frequency_penalty", {.min = -2, .max = 2}).value_or(0);
  if (const auto top_k = reader.Int("top_k", -1, std::numeric_limits<int32_t>::max())) fields.top_k = static_cast<int32_t>(*top_k);
  fields.n = static_cast<int32_t>(reader.Int("n", 1, limits::kChoicesMax).value_or(1));
  fields.seed = reader.Int("seed", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
  if (fields.seed == -1) fields.seed.reset();
  fields.priority = reader.Int("priority", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()).value_or(0);
  if (const auto best_of = reader.Int("best_of", 1, limits::kChoicesMax); best_of.has_value() && *best_of != fields.n) {
    reader.NotAllowed("best_of",
                      fmt::format("best_of {} is not n ({}); choosing among more answers is no longer offered", *best_of, fields.n));
  }
}

void ReadTokenFields(FieldReader& reader, const ServerOptions& options, SamplingFields& fields) {
  const int32_t vocab_size = options.vocab_size;
  fields.logit_bias = ReadLogitBias(reader, vocab_size);
  fields.stop_token_ids = reader.TokenIds("stop_token_ids", vocab_size).value_or(std::vector<int32_t>{});
  if (const auto allowed = reader.TokenIds("allowed_token_ids", vocab_size)) {
    if (allowed->empty()) reader.NotAllowed("allowed_token_ids", "the list is empty: no token could be chosen");
    fields.allowed_token_ids = *allowed;
  }
  fields.bad_words = reader.Strings("bad_words").value_or(std::vector<std::string>{});
  if (fields.bad_words.size() > limits::kBadWordsMax) {
    reader.NotAllowed("bad_words", fmt::format("{} words, at most {}", fields.bad_words.size(), limits::kBadWordsMax));
  }
  for (const std::string& word : fields.bad_words) {
    if (word.find_first_not_of(' ') == std::string::npos) reader.NotAllowed("bad_words", "a word is empty");
    if (word.size() > limits::kStopStringBytesMax) {
      reader.NotAllowed("bad_words", fmt::format("a word has {} bytes, at most {}", word.size(), limits::kStopStringBytesMax));
    }
  }
}

void ReadLengths(FieldReader& reader, const ServerOptions& options, SamplingFields& fields) {
  fields.min_tokens = static_cast<int32_t>(reader.Int("min_tokens", 0, options.max_model_len).value_or(0));
  if (const auto keep = reader.Int("truncate_prompt_tokens", -1, options.max_model_len)) {
    fields.truncate_prompt_tokens = static_cast<int32_t>(*keep);
    if (*keep == 0) reader.NotAllowed("truncate_prompt_tokens", "0 tokens of the prompt would be left");
  }
  if (const auto side = reader.String("truncation_side")) {
    if (*side != "left" && *side != "right")
      reader.NotAllowed("truncation_side", fmt::format("\"{}\" is neither left nor right", side->substr(0, 32)));
    fields.truncation_side = *side == "right" ? TruncationSide::kRight : TruncationSide::kLeft;
  }
}

void ReadStreamFields(FieldReader& reader, const ServerOptions& options, SamplingFields& fields) {
  fields.is_stream = reader.Bool("stream").value_or(false);
  if (const Json* stream_options = reader.Object("stream_options")) {
    if (!fields.is_stream) reader.NotAllowed("stream_options", "stream_options needs stream to be true");
    FieldReader inner(*stream_options, "stream_options", reader.problems());
    fields.include_usage = inner.Bool("include_usage").value_or(false);
    fields.continuous_usage = fields.include_usage && inner.Bool("continuous_usage_stats").value_or(false);
  }
  if (options.enable_force_include_usage) fields.include_usage = fields.continuous_usage = true;
  fields.stream_interval = static_cast<int32_t>(reader.Int("stream_interval", 1, std::numeric_limits<int32_t>::max()).value_or(1));
  fields.stream_interval = std::max(fields.stream_interval, options.stream_interval);
}

void CheckTogether(FieldReader& reader, const ServerOptions& options, SamplingFields& fields) {
  const double temperature = fields.temperature.value_or(options.sampling.temperature.value_or(1.0));
  if (fields.n > 1 && temperature < kGreedyTemperature) {
    reader.NotAllowed("n", fmt::format("n is {} with temperature 0: the answers would be the same", fields.n));
  }
  if (fields.prompt_logprobs.value_or(0) > 0 && fields.is_stream) {
    reader.NotAllowed("prompt_logprobs", "prompt_logprobs are not available with stream");
  }
  // They would work here; a client that relies on the refusal of vllm serve gets it all the same.
  if (options.drafts_are_on && fields.min_p.value_or(0) > 0) {
    reader.NotAllowed("min_p", "The min_p and logit_bias sampling parameters are not yet supported with speculative decoding.");
  }
  if (options.drafts_are_on && !fields.logit_bias.empty()) {
    reader.NotAllowed("logit_bias", "The min_p and logit_bias sampling parameters are not yet supported with speculative decoding.");
  }
  if (fields.priority != 0 && !options.priorities_allowed) {
    reader.NotAllowed("priority", fmt::format("priority {} needs --scheduling-policy priority", fields.priority));
  }
  if (fields.structure.has_value() && fields.min_tokens > 0) {
    reader.NotAllowed("min_tokens", "min_tokens and structured output exclude each other: the grammar says when the text may end");
  }
  const Json* salt = reader.Find("cache_salt");
  if (salt != nullptr && (!salt->is_string() || salt->get_ref<const std::string&>().empty())) {
    reader.NotAllowed("cache_salt", fmt::format("{} is not a non-empty string", Preview(*salt)));
  }
}

}  // namespace

std::optional<int32_t> ReadLogprobCount(FieldReader& reader, std::string_view name, const ServerOptions& options) {
  const std::optional<int64_t> count = reader.Int(name, -1, std::numeric_limits<int32_t>::max());
  if (!count.has_value()) return std::nullopt;
  const int64_t wanted = *count == -1 ? options.vocab_size : *count;
  const int64_t most = options.max_logprobs == -1 ? options.vocab_size : options.max_logprobs;
  if (wanted > most) {
    reader.NotAllowed(name, fmt::format("{} alternatives per token, at most {} (--max-logprobs)", wanted, most));
    return std::nullopt;
  }
  return static_cast<int32_t>(wanted);
}

ApiResult<SamplingFields> ReadSamplingFields(FieldReader& reader, const ServerOptions& options) {
  AVOCET_TRY_VOID(RefuseNotOffered(reader));
  SamplingFields fields;
  ReadNumbers(reader, fields);
  ReadTokenFields(reader, options, fields);
  ReadLengths(reader, options, fields);
  ReadStreamFields(reader, options, fields);
  fields.stop = ReadStops(reader);
  fields.include_stop_str_in_output = reader.Bool("include_stop_str_in_output").value_or(false);
  fields.ignore_eos = reader.Bool("ignore_eos").value_or(false);
  fields.prompt_logprobs = ReadLogprobCount(reader, "prompt_logprobs", options);
  fields.skip_special_tokens = reader.Bool("skip_special_tokens").value_or(true);
  fields.return_token_ids = reader.Bool("return_token_ids").value_or(false);
  fields.return_tokens_as_token_ids = reader.Bool("return_tokens_as_token_ids").value_or(options.return_tokens_as_token_ids);
  fields.request_id = reader.String("request_id").value_or("");
  fields.structure = ReadStructure(reader);
  if (const auto budget = reader.Int("thinking_token_budget", 0, std::numeric_limits<int32_t>::max())) {
    fields.thinking_token_budget = static_cast<int32_t>(*budget);
  }
  CheckTogether(reader, options, fields);
  return fields;
}

engine::SamplingParams ResolveSampling(const SamplingFields& fields, const ServerOptions& options, const tokenizer::Tokenizer* tokenizer) {
  const SamplingDefaults& defaults = options.sampling;
  engine::SamplingParams params;
  params.temperature = static_cast<float>(fields.temperature.value_or(defaults.temperature.value_or(1.0)));
  params.top_p = static_cast<float>(fields.top_p.value_or(defaults.top_p.value_or(1.0)));
  params.top_k = fields.top_k.value_or(defaults.top_k.value_or(0));
  params.min_p = static_cast<float>(fields.min_p.value_or(defaults.min_p.value_or(0.0)));
  params.repetition_penalty = static_cast<float>(fields.repetition_penalty.value_or(defaults.repetition_penalty.value_or(1.0)));
  params.presence_penalty = static_cast<float>(fields.presence_penalty);
  params.frequency_penalty = static_cast<float>(fields.frequency_penalty);
  if (fields.seed.has_value()) params.seed = static_cast<uint64_t>(*fields.seed);
  params.logit_bias = fields.logit_bias;
  params.allowed_token_ids = fields.allowed_token_ids;
  params.stop_token_ids = fields.stop_token_ids;
  params.eos_token_ids = options.eos_token_ids;
  params.ignore_eos = fields.ignore_eos;
  params.min_tokens = fields.min_tokens;
  if (tokenizer == nullptr) return params;
  for (const std::string& word : fields.bad_words) {
    // A word is another token sequence at the start of a text than after a space; both are bad.
    const std::string bare = word.substr(word.find_first_not_of(' '));
    std::vector<int32_t> at_start = tokenizer->Encode(bare);
    std::vector<int32_t> after_space = tokenizer->Encode(" " + bare);
    if (after_space != at_start) params.bad_words.push_back(std::move(after_space));
    params.bad_words.push_back(std::move(at_start));
  }
  return params;
}

}  // namespace avocet::server
