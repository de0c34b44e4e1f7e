// Page ids: a free list and reference counts. PAGE-1: free + referenced = total, checked by CheckConservation. PAGE-2: a page with two
// holders is full and never written again; pages are not shared yet, so every live page has exactly one holder.
// Owner: the engine thread, through the CacheManager.
#pragma once

#include <cstdint>
#include <vector>

#include "base/mat_view.h"

namespace avocet::engine {

class PagePool {
 public:
  explicit PagePool(int32_t num_pages);

  int32_t num_pages() const { return static_cast<int32_t>(references_.size()); }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }

  // The caller has checked num_free(). The page starts with one reference.
  PageId Allocate();
  void Release(PageId page);
  void CheckConservation() const;

 private:
  std::vector<PageId> free_;
  std::vector<int32_t> references_;  // [num_pages]
};

}  // namespace avocet::engine
