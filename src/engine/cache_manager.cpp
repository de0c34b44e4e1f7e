#include "engine/cache_manager.h"

#include "base/check.h"

namespace avocet::engine {

CacheManager::CacheManager(const model::RunnerShape& shape)
    : pages_(shape.num_pages), slots_(shape.num_slots), page_tokens_(shape.page_tokens) {}

void CacheManager::Admit(Sequence& sequence) {
  CHECK(!sequence.is_running() && sequence.pages.empty(), "STATE-1: sequence {} is admitted twice", sequence.request.id);
  sequence.slot = slots_.Allocate();
  sequence.num_computed = 0;
}

void CacheManager::Extend(Sequence& sequence, int32_t positions) {
  const auto want = static_cast<size_t>(PagesFor(positions));
  while (sequence.pages.size() < want) sequence.pages.push_back(pages_.Allocate());
}

void CacheManager::Release(Sequence& sequence) {
  for (PageId page : sequence.pages) pages_.Release(page);
  sequence.pages.clear();
  if (sequence.is_running()) slots_.Release(sequence.slot);
  sequence.slot = SlotId::kNone;
  sequence.num_computed = 0;
  sequence.num_planned = 0;
  sequence.num_pending = 0;
  sequence.num_draft_layer = 0;
  sequence.drafts.clear();
}

void CacheManager::CheckConservation() const {
  pages_.CheckConservation();
  slots_.CheckConservation();
}

}  // namespace avocet::engine
