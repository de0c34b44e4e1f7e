#include "cli/memory_plan.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace avocet::cli {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kGiB = size_t{1} << 30;

// The 0.8B shape: 1.5 GiB of weights, 12 KiB of K/V per token, 19 MiB of state per sequence.
MemoryNeeds SmallModel(int32_t page_tokens = 64) {
  return {.weights_bytes = 3 * kGiB / 2,
          .page_bytes = static_cast<size_t>(page_tokens) * 12 * 1024,
          .slot_bytes = 19 * kMiB,
          .model_max_len = 262144,
          .workspace_bytes = [](int32_t rows, int32_t logit_rows, int32_t) {
            return static_cast<size_t>(rows) * 64 * 1024 + static_cast<size_t>(logit_rows) * kMiB;
          }};
}

MemoryPlan Plan(const MemoryNeeds& needs, const MemoryWishes& wishes) {
  Result<MemoryPlan> plan = PlanMemory(needs, wishes);
  EXPECT_TRUE(plan) << plan.error().message;
  return plan ? *std::move(plan) : MemoryPlan{};
}

std::string ErrorOf(const MemoryNeeds& needs, const MemoryWishes& wishes) {
  const Result<MemoryPlan> plan = PlanMemory(needs, wishes);
  return plan ? "(no error)" : plan.error().message;
}

TEST(MemoryPlan, RoomForAll_TakesDefaults) {
  const MemoryPlan plan = Plan(SmallModel(), {.available_bytes = 512 * kGiB, .max_model_len = 4096});
  EXPECT_EQ(plan.max_num_seqs, 256);
  EXPECT_EQ(plan.max_num_batched_tokens, 2048);
  EXPECT_EQ(plan.num_slots, 256);
  EXPECT_EQ(plan.num_pages, 256 * 64) << "more pages than all sequences can fill are not reserved";
  EXPECT_EQ(plan.MaxConcurrency(), 256);
  EXPECT_THAT(plan.notes, IsEmpty());
}

TEST(MemoryPlan, Laptop_LowersSequencesForTheModelsOwnLength) {
  // 0.9 of 8 GiB less 1.5 GiB of weights less 0.4375 GiB (2,048 rows, 256 + 64 logit rows) is 5.26 GiB; one sequence of 262,144 tokens
  // takes 3 GiB of pages; half of the caches would hold 141 states, what the pages leave holds 121.
  const MemoryPlan plan = Plan(SmallModel(), {.available_bytes = 8 * kGiB});
  EXPECT_EQ(plan.max_model_len, 262144);
  EXPECT_EQ(plan.max_num_seqs, 121);
  EXPECT_THAT(plan.notes, Contains(HasSubstr("max-num-seqs lowered from 256 to 121")));
  EXPECT_LE(plan.weights_bytes + plan.workspace_bytes + plan.states_bytes() + plan.pages_bytes(), plan.budget_bytes);
  EXPECT_GE(plan.cache_tokens(), 262144);
}

TEST(MemoryPlan, ExplicitSequencesThatDoNotFit_NamesALargestThatDoes) {
  const MemoryWishes wishes{.available_bytes = 64 * kGiB, .cache_bytes = 4 * kGiB, .max_model_len = 131072, .max_num_seqs = 1000};
  const std::string message = ErrorOf(SmallModel(), wishes);
  ASSERT_THAT(message, HasSubstr("--max-num-seqs "));
  const int32_t named = std::stoi(message.substr(message.rfind("--max-num-seqs ") + 15));
  MemoryWishes smaller = wishes;
  smaller.max_num_seqs = named;
  EXPECT_EQ(Plan(SmallModel(), smaller).max_num_seqs, named);
  smaller.max_num_seqs = named + 1;
  EXPECT_THAT(ErrorOf(SmallModel(), smaller), HasSubstr("missing"));
}

TEST(MemoryPlan, LengthThatDoesNotFit_NamesALargestThatDoes) {
  const MemoryWishes wishes{.available_bytes = 3 * kGiB, .max_model_len = 262144};
  const std::string message = ErrorOf(SmallModel(), wishes);
  ASSERT_THAT(message, HasSubstr("--max-model-len "));
  MemoryWishes shorter = wishes;
  shorter.max_model_len = std::stoi(message.substr(message.find("--max-model-len ") + 16));
  EXPECT_EQ(Plan(SmallModel(), shorter).max_model_len, shorter.max_model_len);
}

TEST(MemoryPlan, AutoLength_IsTheLongestThatFits) {
  const MemoryPlan plan = Plan(SmallModel(), {.available_bytes = 3 * kGiB, .max_model_len = -1});
  EXPECT_LT(plan.max_model_len, 262144);
  EXPECT_GT(plan.max_model_len, 1000);
  EXPECT_GE(plan.MaxConcurrency(), 1);
  EXPECT_THAT(plan.notes, Contains(HasSubstr("max-model-len auto")));
  EXPECT_EQ(Plan(SmallModel(), {.available_bytes = 512 * kGiB, .max_model_len = -1}).max_model_len, 262144);
}

TEST(MemoryPlan, CacheBytes_AreUsedExactly) {
  const MemoryWishes wishes{.available_bytes = 64 * kGiB, .cache_bytes = 4 * kGiB, .max_model_len = 32768};
  const MemoryPlan plan = Plan(SmallModel(), wishes);
  const size_t caches = plan.states_bytes() + plan.pages_bytes();
  EXPECT_LE(caches, 4 * kGiB);
  EXPECT_GT(caches + plan.page_bytes, 4 * kGiB);
}

TEST(MemoryPlan, CacheBytesBeyondUse_AreReservedAsAsked) {
  const MemoryPlan plan =
      Plan(SmallModel(), {.available_bytes = 64 * kGiB, .cache_bytes = 8 * kGiB, .max_model_len = 64, .max_num_seqs = 2});
  EXPECT_THAT(DescribePlan(plan), Contains("Available KV cache memory: 8.00 GiB"));
}

TEST(MemoryPlan, PagesOverride_IsExact) {
  const MemoryPlan plan = Plan(SmallModel(16), {.available_bytes = 64 * kGiB, .num_pages = 7, .page_tokens = 16, .max_model_len = 2048});
  EXPECT_EQ(plan.num_pages, 7);
  EXPECT_THAT(plan.notes, Contains(HasSubstr("longer than 112 tokens")));
}

TEST(MemoryPlan, FewRows_LowerTheDefaultSequences) {
  const MemoryPlan plan = Plan(SmallModel(), {.available_bytes = 64 * kGiB, .max_model_len = 2048, .max_num_batched_tokens = 7});
  EXPECT_EQ(plan.max_num_seqs, 7);
  EXPECT_EQ(plan.max_num_batched_tokens, 7);
  EXPECT_EQ(plan.max_logit_rows, 7);
  EXPECT_THAT(ErrorOf(SmallModel(), {.available_bytes = 64 * kGiB, .max_num_seqs = 8, .max_num_batched_tokens = 7}), HasSubstr("below"));
  EXPECT_EQ(Plan(SmallModel(), {.available_bytes = 512 * kGiB, .max_model_len = 2048, .max_num_seqs = 4096}).max_num_batched_tokens, 4096);
}

TEST(MemoryPlan, MoreRowsThanAllSequencesHave_AreNotReserved) {
  const MemoryPlan plan =
      Plan(SmallModel(), {.available_bytes = 64 * kGiB, .max_model_len = 100, .max_num_seqs = 2, .max_num_batched_tokens = 16384});
  EXPECT_EQ(plan.max_num_batched_tokens, 200);
  EXPECT_THAT(plan.notes, Contains(HasSubstr("from 16384 to 200")));
}

TEST(MemoryPlan, LongerThanTheModel_IsAnErrorUnlessAllowed) {
  EXPECT_THAT(ErrorOf(SmallModel(), {.available_bytes = 512 * kGiB, .max_model_len = 300000}), HasSubstr("VLLM_ALLOW_LONG_MAX_MODEL_LEN"));
  EXPECT_EQ(Plan(SmallModel(), {.available_bytes = 512 * kGiB, .max_model_len = 300000, .allow_longer_than_model = true}).max_model_len,
            300000);
}

TEST(MemoryPlan, ModelLargerThanMemory_SaysWhatIsMissingAndThreeWaysOut) {
  const std::string message = ErrorOf(SmallModel(), {.available_bytes = kGiB});
  EXPECT_THAT(message, HasSubstr("missing"));
  EXPECT_THAT(message, HasSubstr("--gpu-memory-utilization"));
  EXPECT_THAT(message, HasSubstr("--max-num-batched-tokens"));
  EXPECT_THAT(message, HasSubstr("smaller model"));
  EXPECT_THAT(ErrorOf(SmallModel(), {.available_bytes = 4 * kGiB, .cache_bytes = 4 * kGiB}), HasSubstr("--kv-cache-memory-bytes"));
}

TEST(MemoryPlan, Lines_AreThoseThatUsersLookFor) {
  const MemoryPlan plan =
      Plan(SmallModel(), {.available_bytes = 64 * kGiB, .cache_bytes = 2 * kGiB, .max_model_len = 5000, .max_num_seqs = 32});
  const std::vector<std::string> lines = DescribePlan(plan);
  // 2 GiB less 32 states of 19 MiB, in pages of 768 KiB: 1,920 pages; a sequence of 5,000 tokens takes 79.
  EXPECT_THAT(lines, Contains("Available KV cache memory: 2.00 GiB"));
  EXPECT_THAT(lines, Contains("GPU KV cache size: 122,880 tokens"));
  EXPECT_THAT(lines, Contains("Maximum concurrency for 5,000 tokens per request: 24.30x"));
}

TEST(MemoryPlan, RandomWishes_NeverPassTheBudgetOrCrash) {
  const uint32_t seed = 20261201;
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const auto below = [&rng](uint64_t n) { return static_cast<int64_t>(rng() % n); };
  int32_t num_plans = 0;
  for (int32_t i = 0; i < 20000; ++i) {
    const auto page_tokens = static_cast<int32_t>(16 << below(6));
    MemoryNeeds needs{.weights_bytes = static_cast<size_t>(below(1ull << below(44))),
                      .page_bytes = static_cast<size_t>(below(4) == 0 ? 0 : below(1ull << below(30))),
                      .slot_bytes = static_cast<size_t>(below(4) == 0 ? 0 : below(1ull << below(30))),
                      .model_max_len = static_cast<int32_t>(1 + below(1 << below(24))),
                      .workspace_bytes = [](int32_t rows, int32_t, int32_t) { return static_cast<size_t>(rows) * 1000; }};
    MemoryWishes wishes{.available_bytes = static_cast<size_t>(below(1ull << below(45))),
                        .utilization = 0.01 + 0.99 * 0.01 * static_cast<double>(below(100)),
                        .page_tokens = page_tokens};
    if (below(2) == 0) wishes.cache_bytes = static_cast<size_t>(1 + below(1ull << below(62)));
    if (below(4) == 0) wishes.num_pages = static_cast<int32_t>(1 + below(1 << below(24)));
    if (below(2) == 0) wishes.max_model_len = below(3) == 0 ? -1 : 1 + below(1ull << below(31));
    if (below(2) == 0) wishes.max_num_seqs = static_cast<int32_t>(1 + below(1 << 16));
    if (below(2) == 0) wishes.max_num_batched_tokens = static_cast<int32_t>(1 + below(1 << 20));
    const Result<MemoryPlan> plan = PlanMemory(needs, wishes);
    if (!plan) {
      EXPECT_FALSE(plan.error().message.empty());
      continue;
    }
    ++num_plans;
    const size_t caches = plan->states_bytes() + plan->pages_bytes();
    const size_t limit = wishes.cache_bytes ? plan->available_bytes : plan->budget_bytes;
    EXPECT_LE(plan->weights_bytes + plan->workspace_bytes + caches, limit + plan->page_bytes);
    EXPECT_GE(plan->num_pages, 1);
    EXPECT_GE(plan->max_num_seqs, 1);
    EXPECT_GE(plan->max_model_len, 1);
    EXPECT_GE(plan->max_num_batched_tokens, std::min(plan->max_num_seqs, plan->max_num_batched_tokens));
    if (!wishes.num_pages) {
      EXPECT_GE(plan->cache_tokens(), plan->max_model_len);
    }
  }
  EXPECT_GT(num_plans, 2000);
}

}  // namespace
}  // namespace avocet::cli
