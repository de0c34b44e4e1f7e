// A stable sort whose comparison can fail: values of a template need not have an order.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "base/error.h"

namespace avocet::tokenizer::jinja {

// less(a, b) -> Result<bool>. Merges runs of doubling length; an inconsistent order does no harm.
template <typename T, typename LessFn>
Result<void> StableSort(std::vector<T>& items, LessFn less) {
  std::vector<T> merged;
  merged.reserve(items.size());
  for (size_t width = 1; width < items.size(); width *= 2) {
    merged.clear();
    for (size_t begin = 0; begin < items.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, items.size());
      const size_t end = std::min(begin + 2 * width, items.size());
      size_t left = begin;
      size_t right = middle;
      while (left < middle && right < end) {
        AVOCET_TRY(const bool takes_right, less(items[right], items[left]));
        merged.push_back(std::move(items[takes_right ? right++ : left++]));
      }
      while (left < middle) merged.push_back(std::move(items[left++]));
      while (right < end) merged.push_back(std::move(items[right++]));
    }
    std::swap(items, merged);
  }
  return {};
}

}  // namespace avocet::tokenizer::jinja
