#include "engine/page_pool.h"

#include <algorithm>

#include "base/check.h"

namespace avocet::engine {

PagePool::PagePool(int32_t num_pages) : references_(static_cast<size_t>(num_pages), 0) {
  free_.reserve(static_cast<size_t>(num_pages));
  for (int32_t page = num_pages - 1; page >= 0; --page) free_.push_back(PageId{page});
}

PageId PagePool::Allocate() {
  CHECK(!free_.empty(), "PAGE-1: no free page of {}", num_pages());
  const PageId page = free_.back();
  free_.pop_back();
  int32_t& references = references_[static_cast<size_t>(Index(page))];
  CHECK(references == 0, "PAGE-1: free page {} has {} references", Index(page), references);
  references = 1;
  return page;
}

void PagePool::Release(PageId page) {
  int32_t& references = references_[static_cast<size_t>(Index(page))];
  CHECK(references > 0, "PAGE-1: page {} is released without a holder", Index(page));
  if (--references == 0) free_.push_back(page);
}

void PagePool::CheckConservation() const {
  const auto referenced = std::count_if(references_.begin(), references_.end(), [](int32_t n) { return n > 0; });
  CHECK(num_free() + referenced == num_pages(), "PAGE-1: {} free + {} referenced, {} pages", num_free(), referenced, num_pages());
}

}  // namespace avocet::engine
