#include "model/caches.h"

namespace avocet::model {
namespace {

// Slots start on their own cache line, so that two sequences never share one.
constexpr size_t RoundUp16(size_t floats) {
  return (floats + 15) / 16 * 16;
}

// Of one slot in one layer.
struct SlotFloats {
  size_t recurrent = 0;
  size_t conv = 0;
  size_t drafts = 0;

  explicit SlotFloats(const ModelConfig& config) {
    if (config.NumLayers(LayerKind::kDeltaNet) == 0) return;
    const ops::DeltaNetShape shape = DeltaNetShapeOf(config);
    recurrent = RoundUp16(ops::RecurrentStateFloats(shape));
    conv = RoundUp16(ops::ConvStateFloats(shape));
    drafts = RoundUp16(static_cast<size_t>(config.num_drafts) * ops::DraftRowFloats(shape));
  }
  size_t total() const { return recurrent + conv + drafts; }
};

}  // namespace

ops::AttentionShape AttentionShapeOf(const ModelConfig& config) {
  return {config.num_heads, config.num_kv_heads, config.head_dim, config.rope.rotary_dim};
}

ops::DeltaNetShape DeltaNetShapeOf(const ModelConfig& config) {
  return {config.linear_key_heads, config.linear_value_heads, config.linear_key_dim, config.linear_value_dim, config.conv_kernel};
}

size_t CachePageBytes(const ModelConfig& config, ops::KvType kv_type, int32_t page_tokens) {
  const auto layers = static_cast<size_t>(config.NumKvLayers());
  return layers * ops::KvPageBytes(kv_type, page_tokens, config.num_kv_heads, config.head_dim);
}

size_t CacheSlotBytes(const ModelConfig& config) {
  const auto layers = static_cast<size_t>(config.NumLayers(LayerKind::kDeltaNet));
  return layers * SlotFloats(config).total() * sizeof(float);
}

Result<Caches> Caches::Create(const ModelConfig& config, const CacheShape& shape) {
  Caches caches;
  const int32_t attention_layers = config.NumKvLayers();
  const size_t page_bytes =
      attention_layers == 0 ? 0 : ops::KvPageBytes(shape.kv_type, shape.page_tokens, config.num_kv_heads, config.head_dim);
  const size_t layer_bytes = page_bytes * static_cast<size_t>(shape.num_pages);
  AVOCET_TRY(caches.pages_, device::Arena::Create("K/V pages", layer_bytes * static_cast<size_t>(attention_layers)));
  for (int32_t i = 0; i < attention_layers; ++i) {
    caches.kv_layers_.push_back({.type = shape.kv_type,
                                 .data = caches.pages_.Allocate(layer_bytes),
                                 .page_bytes = page_bytes,
                                 .page_tokens = shape.page_tokens,
                                 .num_kv_heads = config.num_kv_heads,
                                 .head_dim = config.head_dim});
  }

  const auto delta_layers = static_cast<size_t>(config.NumLayers(LayerKind::kDeltaNet));
  caches.num_slots_ = shape.num_slots;
  const SlotFloats floats(config);
  caches.recurrent_floats_ = floats.recurrent;
  caches.conv_floats_ = floats.conv;
  caches.draft_floats_ = floats.drafts;
  const size_t states = delta_layers * static_cast<size_t>(shape.num_slots);
  AVOCET_TRY(caches.states_, device::Arena::Create("recurrent states", states * floats.total() * sizeof(float)));
  caches.recurrent_ = caches.states_.AllocateSpan<float>(states * caches.recurrent_floats_).data();
  caches.conv_ = caches.states_.AllocateSpan<float>(states * caches.conv_floats_).data();
  if (floats.drafts > 0) caches.drafts_ = caches.states_.AllocateSpan<float>(states * floats.drafts).data();
  return caches;
}

float* Caches::Recurrent(int32_t delta_index, SlotId slot) const {
  return recurrent_ +
         (static_cast<size_t>(delta_index) * static_cast<size_t>(num_slots_) + static_cast<size_t>(Index(slot))) * recurrent_floats_;
}

float* Caches::Conv(int32_t delta_index, SlotId slot) const {
  return conv_ + (static_cast<size_t>(delta_index) * static_cast<size_t>(num_slots_) + static_cast<size_t>(Index(slot))) * conv_floats_;
}

float* Caches::Drafts(int32_t delta_index, SlotId slot) const {
  if (drafts_ == nullptr) return nullptr;
  return drafts_ + (static_cast<size_t>(delta_index) * static_cast<size_t>(num_slots_) + static_cast<size_t>(Index(slot))) * draft_floats_;
}

}  // namespace avocet::model
