// Frequencies and axes of the rotary embedding, from RopeConfig (model.md 1.6 and 2.8).
#include <algorithm>
#include <cmath>
#include <numbers>

#include "model/config.h"

namespace avocet::model {
namespace {

// The frequency index whose wave turns `rotations` times over the original context.
double CorrectionIndex(const RopeConfig& rope, double rotations) {
  const double wave_ratio = rope.yarn_original_positions / (rotations * 2 * std::numbers::pi);
  return rope.rotary_dim * std::log(wave_ratio) / (2 * std::log(static_cast<double>(rope.theta)));
}

}  // namespace

// In double, rounded once. YaRN as the Hugging Face reference computes it: fast waves keep their frequency, slow ones are stretched by
// the factor, between them a ramp. (vLLM's M-RoPE class reads another original length; model.md 1.6.)
std::vector<float> RopeConfig::InverseFrequencies() const {
  double low = 0;
  double high = 0;
  if (yarn_factor > 1) {
    low = CorrectionIndex(*this, yarn_beta_fast);
    high = CorrectionIndex(*this, yarn_beta_slow);
    if (yarn_truncate) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0);
    high = std::min(high, rotary_dim - 1.0);
    if (low == high) high += 0.001;  // as the reference: a step, not a division by zero
  }
  std::vector<float> frequencies;
  for (int32_t j = 0; j < rotary_dim / 2; ++j) {
    double frequency = std::pow(static_cast<double>(theta), -2.0 * j / rotary_dim);
    if (yarn_factor > 1) {
      const double ramp = std::clamp((j - low) / (high - low), 0.0, 1.0);
      frequency *= (1 - ramp) + ramp / yarn_factor;
    }
    frequencies.push_back(static_cast<float>(frequency));
  }
  return frequencies;
}

// Interleaved: T H W T H W ... as far as the sections of H and W reach, T where they do not. Otherwise the sections one after the other.
std::vector<uint8_t> RopeConfig::FrequencyAxes() const {
  std::vector<uint8_t> axes(static_cast<size_t>(rotary_dim / 2), 0);
  if (mrope_section.empty()) return axes;
  size_t contiguous_begin = static_cast<size_t>(mrope_section[0]);
  for (uint8_t axis = 1; axis < 3; ++axis) {
    const auto section = static_cast<size_t>(mrope_section[axis]);
    if (mrope_interleaved) {
      for (size_t j = axis; j < std::min(3 * section, axes.size()); j += 3) axes[j] = axis;
    } else {
      std::fill_n(axes.begin() + static_cast<ptrdiff_t>(contiguous_begin), section, axis);
      contiguous_begin += section;
    }
  }
  return axes;
}

}  // namespace avocet::model
