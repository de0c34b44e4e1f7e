// What a sequence may say next, decided outside the engine: grammars, a limit on thinking. The sampler asks before it masks anything
// else. A pure function of the generated tokens, so that a preempted or drafted sequence gets the same answer again.
// The calls for one sequence never overlap; any worker may make them.
#pragma once

#include <cstdint>
#include <span>

namespace avocet::engine {

class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  // Whether only some tokens may follow `generated`; then one bit per token says which, at least one of them. Bits beyond the
  // vocabulary are not read. False: any token may follow, and `allowed` is left as it is.
  virtual bool Restricts(std::span<const int32_t> generated, std::span<uint64_t> allowed /*[vocab / 64, rounded up]*/) = 0;
};

}  // namespace avocet::engine
