// The memory behind page and slot ids: K/V pages of every attention layer, recurrent and convolution state of every delta-net layer,
// and what a step's drafts leave behind for the next.
// Layer-major, so that a layer's pages lie together. Who owns which page or slot is the engine's business (CacheManager); here are
// only bytes. Zero-filled and lazily backed: a page costs memory when it is first written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "base/mat_view.h"
#include "device/arena.h"
#include "model/config.h"
#include "ops/attention.h"
#include "ops/delta_rule.h"

namespace avocet::model {

struct CacheShape {
  ops::KvType kv_type = ops::KvType::kBf16;
  int32_t page_tokens = 0;
  int32_t num_pages = 0;
  int32_t num_slots = 0;
};

ops::AttentionShape AttentionShapeOf(const ModelConfig& config);
ops::DeltaNetShape DeltaNetShapeOf(const ModelConfig& config);

// Bytes of one page over all attention layers, and of one slot over all delta-net layers.
size_t CachePageBytes(const ModelConfig& config, ops::KvType kv_type, int32_t page_tokens);
size_t CacheSlotBytes(const ModelConfig& config);

class Caches {
 public:
  static Result<Caches> Create(const ModelConfig& config, const CacheShape& shape);

  // attention_index counts the attention layers from 0 (the draft layer comes after the last), delta_index the delta-net layers.
  const ops::KvLayer& Kv(int32_t attention_index) const { return kv_layers_[static_cast<size_t>(attention_index)]; }
  int32_t num_attention_layers() const { return static_cast<int32_t>(kv_layers_.size()); }
  float* Recurrent(int32_t delta_index, SlotId slot) const;
  float* Conv(int32_t delta_index, SlotId slot) const;
  // What the draft rows of the last step left behind (ops/delta_rule.h); nullptr without drafts.
  float* Drafts(int32_t delta_index, SlotId slot) const;

 private:
  device::Arena pages_;
  device::Arena states_;
  std::vector<ops::KvLayer> kv_layers_;
  int32_t num_slots_ = 0;
  size_t recurrent_floats_ = 0;  // of one slot in one layer
  size_t conv_floats_ = 0;
  size_t draft_floats_ = 0;
  float* recurrent_ = nullptr;  // [delta layers][slots][recurrent_floats]
  float* conv_ = nullptr;       // [delta layers][slots][conv_floats]
  float* drafts_ = nullptr;     // [delta layers][slots][draft_floats]
};

}  // namespace avocet::model
