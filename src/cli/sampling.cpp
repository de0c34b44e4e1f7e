#include "cli/sampling.h"

namespace avocet::cli {
namespace {

template <typename T, typename U>
void Take(const std::optional<T>& flag, const std::optional<U>& file, auto* target) {
  using Target = std::remove_pointer_t<decltype(target)>;
  if (flag) {
    *target = static_cast<Target>(*flag);
  } else if (file) {
    *target = static_cast<Target>(*file);
  }
}

}  // namespace

engine::SamplingParams SamplingFor(const Options& options, const Assembly& assembly) {
  const model::GenerationConfig& file = assembly.files.generation;
  engine::SamplingParams sampling;
  Take(options.temperature, file.temperature, &sampling.temperature);
  Take(options.top_p, file.top_p, &sampling.top_p);
  Take(options.top_k, file.top_k, &sampling.top_k);
  Take(options.min_p, file.min_p, &sampling.min_p);
  Take(options.presence_penalty, std::optional<double>(), &sampling.presence_penalty);
  Take(options.repetition_penalty, file.repetition_penalty, &sampling.repetition_penalty);
  Take(options.max_tokens, file.max_new_tokens, &sampling.max_tokens);
  if (!options.max_tokens && !file.max_new_tokens) sampling.max_tokens = assembly.plan.max_model_len;
  sampling.eos_token_ids = EndTokenIds(assembly);
  return sampling;
}

}  // namespace avocet::cli
