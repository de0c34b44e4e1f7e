#include "cli/memory_plan.h"

#include <algorithm>
#include <limits>

#include "base/limits.h"
#include "cli/human_number.h"

namespace avocet::cli {
namespace {

// Rows whose logits may be wanted in one step beyond one per sequence: prompt_logprobs asks for every row of a chunk.
constexpr int32_t kScoringRows = 64;
// Likewise for drafts.
constexpr int32_t kDraftRowsMax = 192;
// Of the cache memory, for states when max_num_seqs is not given: the other half is for what the sequences have to say.
constexpr size_t kStatesShare = 2;

class Planner {
 public:
  Planner(const MemoryNeeds& needs, const MemoryWishes& wishes) : needs_(needs), wishes_(wishes) {}

  Result<MemoryPlan> Run() {
    plan_.available_bytes = wishes_.available_bytes;
    plan_.budget_bytes = static_cast<size_t>(static_cast<double>(wishes_.available_bytes) * wishes_.utilization);
    plan_.weights_bytes = needs_.weights_bytes;
    plan_.slot_bytes = needs_.slot_bytes;
    plan_.page_bytes = needs_.page_bytes;
    plan_.page_tokens = wishes_.page_tokens;
    AVOCET_TRY_VOID(ChooseLength());
    AVOCET_TRY_VOID(ChooseRows());
    AVOCET_TRY_VOID(ChooseCacheBytes());
    if (wishes_.max_num_seqs) {
      plan_.max_num_seqs = *wishes_.max_num_seqs;
    } else {
      LowerSeqs();
    }
    if (wishes_.max_model_len < 0) FitLength();
    AVOCET_TRY_VOID(CheckFit());
    plan_.num_slots = plan_.max_num_seqs;
    ChoosePages();
    return std::move(plan_);
  }

 private:
  int32_t PagesOf(int64_t tokens) const { return static_cast<int32_t>((tokens + plan_.page_tokens - 1) / plan_.page_tokens); }
  // Pages that must be there: for one sequence of the longest length, or as many as were asked for.
  size_t LeastPageBytes() const {
    const int32_t pages = wishes_.num_pages ? *wishes_.num_pages : PagesOf(plan_.max_model_len);
    return static_cast<size_t>(pages) * needs_.page_bytes;
  }
  void Note(std::string line) { plan_.notes.push_back(std::move(line)); }

  Result<void> ChooseLength() {
    const int64_t wished = wishes_.max_model_len;
    if (wished > needs_.model_max_len && !wishes_.allow_longer_than_model) {
      return FailParam(
          "max-model-len",
          "--max-model-len {} is longer than the model's {} positions (max_position_embeddings in config.json); lower it, or set "
          "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 if you know that the model goes further",
          wished, needs_.model_max_len);
    }
    if (wished > limits::kPositionsMax) {
      return FailParam("max-model-len", "--max-model-len {} is above the limit of {}", wished, limits::kPositionsMax);
    }
    plan_.max_model_len = wished > 0 ? static_cast<int32_t>(wished) : needs_.model_max_len;
    return {};
  }

  Result<void> ChooseRows() {
    const int32_t seqs = wishes_.max_num_seqs.value_or(kDefaultMaxSeqs);
    int32_t rows = wishes_.max_num_batched_tokens.value_or(std::max(kDefaultBatchedTokens, wishes_.max_num_seqs.value_or(0)));
    if (wishes_.max_num_seqs && rows < seqs) {
      return FailParam("max-num-batched-tokens", "--max-num-batched-tokens {} is below --max-num-seqs {}", rows, seqs);
    }
    plan_.max_num_seqs = std::min(seqs, rows);
    if (plan_.max_num_seqs < seqs) {
      Note(
          fmt::format("max-num-seqs lowered from {} to {}: a step has {} rows (--max-num-batched-tokens)", seqs, plan_.max_num_seqs, rows));
    }
    const int64_t rows_max = int64_t{plan_.max_num_seqs} * plan_.max_model_len;
    if (rows > rows_max) {
      if (wishes_.max_num_batched_tokens) {
        Note(fmt::format("max-num-batched-tokens lowered from {} to {}: {} sequences of {} tokens have no more rows", rows, rows_max,
                         plan_.max_num_seqs, plan_.max_model_len));
      }
      rows = static_cast<int32_t>(rows_max);
    }
    plan_.max_num_batched_tokens = rows;
    // Drafts of many sequences share the rows of few: the more run, the fewer pay.
    const int32_t draft_rows = std::min(plan_.max_num_seqs * needs_.num_drafts, kDraftRowsMax);
    plan_.max_logit_rows = std::min(rows, plan_.max_num_seqs + std::max(kScoringRows, draft_rows));
    plan_.workspace_bytes = needs_.workspace_bytes(rows, plan_.max_logit_rows, plan_.max_model_len);
    return {};
  }

  // What is missing, and the three ways out.
  std::unexpected<Error> TooLarge(std::string_view what, size_t needed_bytes, size_t there_bytes, std::string_view ways) const {
    return Fail(Errc::kResourceExhausted,
                "{}: {} needed, {} there, {} missing (weights {}, activations {}; {} available, budget {:.0f}%); {}", what,
                FormatBytes(needed_bytes), FormatBytes(there_bytes), FormatBytes(needed_bytes - there_bytes),
                FormatBytes(plan_.weights_bytes), FormatBytes(plan_.workspace_bytes), FormatBytes(plan_.available_bytes),
                wishes_.utilization * 100, ways);
  }

  Result<void> ChooseCacheBytes() {
    const size_t fixed = plan_.weights_bytes + plan_.workspace_bytes;
    if (wishes_.cache_bytes) {
      cache_bytes_ = *wishes_.cache_bytes;
      if (fixed + cache_bytes_ > plan_.available_bytes) {
        return TooLarge("the model and the caches asked for do not fit into memory", fixed + cache_bytes_, plan_.available_bytes,
                        "lower --kv-cache-memory-bytes, free memory, or lower --max-num-batched-tokens");
      }
      return {};
    }
    if (fixed >= plan_.budget_bytes) {
      return TooLarge("the model does not fit into memory", fixed + needs_.slot_bytes + needs_.page_bytes, plan_.budget_bytes,
                      "free memory or raise --gpu-memory-utilization, lower --max-num-batched-tokens, or serve a smaller model");
    }
    cache_bytes_ = plan_.budget_bytes - fixed;
    return {};
  }

  // The default number of sequences gives way to their length.
  void LowerSeqs() {
    if (needs_.slot_bytes == 0) return;
    const size_t least_pages = LeastPageBytes();
    const size_t by_share = cache_bytes_ / kStatesShare / needs_.slot_bytes;
    const size_t by_length = cache_bytes_ > least_pages ? (cache_bytes_ - least_pages) / needs_.slot_bytes : 0;
    // With --max-model-len auto the length gives way instead.
    const size_t fits = std::max<size_t>(1, wishes_.max_model_len < 0 ? by_share : std::min(by_share, by_length));
    if (fits >= static_cast<size_t>(plan_.max_num_seqs)) return;
    Note(fmt::format("max-num-seqs lowered from {} to {}: each running sequence holds {} of state, and {} are there for the caches",
                     plan_.max_num_seqs, fits, FormatBytes(needs_.slot_bytes), FormatBytes(cache_bytes_)));
    plan_.max_num_seqs = static_cast<int32_t>(fits);
  }

  size_t StatesBytes() const { return static_cast<size_t>(plan_.max_num_seqs) * needs_.slot_bytes; }

  // The longest sequence that fits beside the states, at least 0.
  int32_t LongestLength() const {
    if (needs_.page_bytes == 0) return needs_.model_max_len;
    const size_t left = cache_bytes_ > StatesBytes() ? cache_bytes_ - StatesBytes() : 0;
    const size_t pages = wishes_.num_pages ? static_cast<size_t>(*wishes_.num_pages) : left / needs_.page_bytes;
    return static_cast<int32_t>(
        std::min<size_t>(pages * static_cast<size_t>(plan_.page_tokens), static_cast<size_t>(needs_.model_max_len)));
  }

  void FitLength() {
    const int32_t longest = std::max(1, LongestLength());
    if (longest < plan_.max_model_len) {
      Note(fmt::format("max-model-len auto: {} of the model's {} positions fit", longest, needs_.model_max_len));
      plan_.max_model_len = longest;
    }
  }

  Result<void> CheckFit() const {
    const size_t needed = StatesBytes() + LeastPageBytes();
    if (needed <= cache_bytes_) return {};
    const size_t least = LeastPageBytes();
    const size_t seqs = cache_bytes_ > least && needs_.slot_bytes > 0 ? (cache_bytes_ - least) / needs_.slot_bytes : 0;
    std::string ways = fmt::format("raise the caches to {} (--kv-cache-memory-bytes or --gpu-memory-utilization)", FormatBytes(needed));
    if (const int32_t longest = LongestLength(); longest > 0 && longest < plan_.max_model_len && !wishes_.num_pages) {
      ways += fmt::format(", or --max-model-len {} (or auto)", longest);
    }
    if (seqs > 0) ways += fmt::format(", or --max-num-seqs {}", seqs);
    return TooLarge(fmt::format("the caches do not hold {} sequence states ({}) and {} K/V pages ({})", plan_.max_num_seqs,
                                FormatBytes(StatesBytes()), wishes_.num_pages.value_or(PagesOf(plan_.max_model_len)), FormatBytes(least)),
                    needed, cache_bytes_, ways);
  }

  void ChoosePages() {
    const int32_t pages_of_one = PagesOf(plan_.max_model_len);
    if (wishes_.num_pages) {
      plan_.num_pages = *wishes_.num_pages;
      if (plan_.num_pages < pages_of_one) {
        Note(fmt::format("--num-gpu-blocks-override {}: sequences longer than {} tokens cannot be held and will fail", plan_.num_pages,
                         plan_.cache_tokens()));
      }
      return;
    }
    // More pages than all sequences can fill are reserved only where the size was asked for.
    const int64_t useful = int64_t{plan_.max_num_seqs} * pages_of_one;
    const int64_t fits = needs_.page_bytes == 0 ? useful : static_cast<int64_t>((cache_bytes_ - StatesBytes()) / needs_.page_bytes);
    const int64_t ids = std::numeric_limits<int32_t>::max() / plan_.page_tokens;
    plan_.num_pages = static_cast<int32_t>(std::max<int64_t>(1, std::min({wishes_.cache_bytes ? fits : std::min(useful, fits), ids})));
  }

  const MemoryNeeds& needs_;
  const MemoryWishes& wishes_;
  MemoryPlan plan_;
  size_t cache_bytes_ = 0;
};

}  // namespace

double MemoryPlan::MaxConcurrency() const {
  const double pages_of_one = static_cast<double>((int64_t{max_model_len} + page_tokens - 1) / page_tokens);
  return std::min(static_cast<double>(num_pages) / pages_of_one, static_cast<double>(num_slots));
}

Result<MemoryPlan> PlanMemory(const MemoryNeeds& needs, const MemoryWishes& wishes) {
  return Planner(needs, wishes).Run();
}

std::vector<std::string> DescribePlan(const MemoryPlan& plan) {
  std::vector<std::string> lines = {
      fmt::format("{:>9.3f} GiB  weights", Gib(plan.weights_bytes)),
      fmt::format("{:>9.3f} GiB  activations, {} rows per step", Gib(plan.workspace_bytes), plan.max_num_batched_tokens),
      fmt::format("{:>9.3f} GiB  recurrent states, {} sequences of {}", Gib(plan.states_bytes()), plan.num_slots,
                  FormatBytes(plan.slot_bytes)),
      fmt::format("{:>9.3f} GiB  K/V, {} pages of {} tokens ({} each)", Gib(plan.pages_bytes()), FormatCount(plan.num_pages),
                  plan.page_tokens, FormatBytes(plan.page_bytes)),
      fmt::format("{:>9.3f} GiB  in all, of {:.3f} GiB available at start; states and pages are reserved, and cost memory when written",
                  Gib(plan.weights_bytes + plan.workspace_bytes + plan.states_bytes() + plan.pages_bytes()), Gib(plan.available_bytes)),
      fmt::format("Available KV cache memory: {:.2f} GiB", Gib(plan.states_bytes() + plan.pages_bytes())),
      fmt::format("GPU KV cache size: {} tokens", FormatCount(plan.cache_tokens())),
      fmt::format("Maximum concurrency for {} tokens per request: {:.2f}x", FormatCount(plan.max_model_len), plan.MaxConcurrency()),
  };
  lines.insert(lines.end(), plan.notes.begin(), plan.notes.end());
  return lines;
}

}  // namespace avocet::cli
