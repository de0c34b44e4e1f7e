// MEM-1: a step allocates nothing, with a real network and every way of sampling; counted over the whole process, all workers included.
#include <string>

#include <gtest/gtest.h>

#include "engine/engine_core.h"
#include "support/allocations.h"
#include "support/golden.h"

namespace avocet::engine {
namespace {

constexpr int32_t kSequences = 8;

Request MakeRequest(RequestId id, int32_t vocab_size) {
  Request request;
  request.id = id;
  for (int32_t i = 0; i < 5; ++i) request.prompt.push_back((i * 71 + static_cast<int32_t>(id) * 13) % vocab_size);
  SamplingParams& sampling = request.sampling;
  sampling.max_tokens = 60;
  sampling.ignore_eos = true;
  sampling.temperature = id % 2 == 0 ? 0.0f : 0.9f;
  if (id % 4 == 1) sampling.top_k = 20;
  if (id % 4 == 3) sampling.top_p = 0.9f;
  if (id % 3 == 0) {
    sampling.presence_penalty = 0.5f;
    sampling.repetition_penalty = 1.2f;
  }
  if (id % 5 == 0) sampling.min_p = 0.05f;
  return request;
}

class Allocations : public testing::TestWithParam<std::string> {};

TEST_P(Allocations, Mem1_DecodeSteps_AllocateOnlyForEvents) {
  if (!test::CanCountAllocations()) GTEST_SKIP() << "the sanitizer brings its own allocator";
  if (test::IsasUnderTest().back() == device::Isa::kRef) GTEST_SKIP() << "the reference kernels allocate as they please";
  test::TestModel runner(test::GoldenDir() + "/checkpoints/" + GetParam(), {.isa = test::IsasUnderTest().back(), .workers = 2});
  const ops::KernelTable& kernels = ops::KernelsFor(test::IsasUnderTest().back());
  const int32_t vocab_size = runner.model().shape().vocab_rows - 80;
  EngineOptions options{.max_num_seqs = kSequences, .max_num_batched_tokens = 256, .max_model_len = 256, .vocab_size = vocab_size};
  options.kernels = &kernels;
  EngineCore core(options, runner.model(), runner.model().num_workers());
  const Clock::time_point now = Clock::now();
  for (RequestId id = 1; id <= kSequences; ++id) core.Add(MakeRequest(id, vocab_size), now);
  std::vector<RequestEvent> events;
  for (int step = 0; step < 20; ++step) {
    core.Step(now);
    core.TakeEvents(events);
  }
  for (int step = 0; step < 20; ++step) {
    int64_t allocations = 0;
    {
      const test::AllocationCount count;
      core.Step(now);
      allocations = count.value();
    }
    core.TakeEvents(events);
    // An event has one vector of tokens and is handed away; the list of events grows by doubling.
    ASSERT_LE(allocations, kSequences + 4) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Allocations, testing::Values("a-dense", "b-moe-mtp", "d2-dense-ascend-static"),
                         [](const auto& checkpoint) { return checkpoint.param.substr(0, checkpoint.param.find('-')); });

}  // namespace
}  // namespace avocet::engine
