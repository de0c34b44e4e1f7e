// What one rendering may still spend: a template is code that a stranger wrote (base/limits.h). Work and memory are charged before they
// are spent. One object per rendering.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "base/limits.h"

namespace avocet::tokenizer::jinja {

class Budget {
 public:
  // Work: one step is an evaluated node, or about as much time.
  Result<void> Steps(int64_t num_steps) {
    num_steps_ += num_steps;
    if (num_steps_ <= limits::kTemplateStepsMax) return {};
    is_exhausted_ = true;
    return Fail(Errc::kInvalidArgument, "more than {} steps", limits::kTemplateStepsMax);
  }
  // A text may have that size; what is added to it is charged elsewhere.
  Result<void> Fits(size_t num_bytes) {
    if (num_bytes <= limits::kTemplateOutputBytesMax) return {};
    is_exhausted_ = true;
    return Fail(Errc::kInvalidArgument, "a text of more than {} bytes", limits::kTemplateOutputBytesMax);
  }
  // A text of that size is about to be made, or gone through.
  Result<void> Text(size_t num_bytes) {
    AVOCET_TRY_VOID(Fits(num_bytes));
    return Steps(1 + static_cast<int64_t>(num_bytes / limits::kTemplateStepBytes));
  }
  // A container of that many values is about to be made.
  Result<void> Items(size_t num_items) { return Steps(1 + static_cast<int64_t>(num_items / 2)); }
  // A container is about to be made whose values are nested so deeply. The bound keeps recursion over values, their destruction
  // included, within the stack.
  Result<void> Nesting(int32_t depth) {
    if (depth <= limits::kTemplateDepthMax) return {};
    is_exhausted_ = true;
    return Fail(Errc::kInvalidArgument, "values nested more than {} deep", limits::kTemplateDepthMax);
  }
  // A limit was met: where the reference catches an error of Python and goes on, this one must end the rendering all the same.
  bool is_exhausted() const { return is_exhausted_; }

 private:
  int64_t num_steps_ = 0;
  bool is_exhausted_ = false;
};

}  // namespace avocet::tokenizer::jinja
