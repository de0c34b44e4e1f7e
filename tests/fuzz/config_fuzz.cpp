// config.json and generation_config.json from memory: whatever the text, a config whose numbers can be computed with or one line of
// refusal.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "model/config.h"
#include "model/model_weights.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace avocet;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = model::ParseConfig(text);
  if (config) {
    const auto frequencies = config->rope.InverseFrequencies();
    const auto axes = config->rope.FrequencyAxes();
    if (frequencies.size() != axes.size() || frequencies.size() * 2 != static_cast<size_t>(config->rope.rotary_dim)) std::abort();
    for (const float frequency : frequencies) {
      if (!std::isfinite(frequency)) std::abort();
    }
    if (config->layers.size() != static_cast<size_t>(config->num_layers)) std::abort();
    // Counting walks every expert: bounded here, so that a large model does not slow the search.
    if (!config->moe || config->moe->num_experts * config->num_layers < 4096) {
      if (model::PackedModelBytes(*config, ops::WeightFormat::kBf16) == 0) std::abort();
    }
  } else if (config.error().message.find('\n') != std::string::npos) {
    std::abort();
  }
  if (const auto generation = model::ParseGenerationConfig(text); !generation && generation.error().message.empty()) std::abort();
  return 0;
}
