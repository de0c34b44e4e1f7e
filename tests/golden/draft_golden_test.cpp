// The draft layer against the independent implementation: its logits, its recursive drafts, and whole greedy runs with 1, 2 and 3 drafts
// step by step (tests/data/golden/mtp).
#include <cmath>
#include <fstream>
#include <map>
#include <numeric>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/engine_core.h"
#include "support/golden.h"

namespace avocet::test {
namespace {

using Json = nlohmann::json;

class GoldenDrafts : public testing::TestWithParam<const char*> {
 protected:
  std::string Folder() const { return GoldenDir() + "/mtp/" + GetParam(); }
  TestModel Make(int32_t num_drafts, device::Isa isa) const {
    return TestModel(GoldenDir() + "/checkpoints/" + GetParam(),
                     {.precision = model::Precision::kF32, .isa = isa, .workers = 2, .num_drafts = num_drafts});
  }
};

model::DraftPlan PlanOf(std::span<const int32_t> next_tokens, int32_t first_position, model::DraftPlan::Source source) {
  model::DraftPlan plan;
  const auto rows = static_cast<int32_t>(next_tokens.size());
  plan.source = source;
  plan.token_ids.assign(next_tokens.begin(), next_tokens.end());
  for (int32_t i = 0; i < rows; ++i) {
    plan.source_rows.push_back(i);
    plan.draft_rows.push_back(i);
  }
  for (int axis = 0; axis < 3; ++axis) {
    for (int32_t i = 0; i < rows; ++i) plan.positions.push_back(first_position + i);
  }
  const int32_t num_pages = (first_position + rows + 15) / 16;
  for (int32_t i = 0; i < num_pages; ++i) plan.pages.push_back(PageId{i});
  plan.sequences.push_back({.row_begin = 0,
                            .num_rows = rows,
                            .first_position = first_position,
                            .num_drafts = 0,
                            .num_pending = 0,
                            .page_begin = 0,
                            .num_pages = num_pages,
                            .slot = SlotId{0}});
  return plan;
}

TEST_P(GoldenDrafts, DraftLogitsAndRecursiveDrafts_AgreeWithReference) {
  const std::map<std::string, Tensor> reference = ReadTensors(Folder() + "/mtp_f32.safetensors");
  for (const device::Isa isa : IsasUnderTest()) {
    for (const char* prompt : {"p2.", "p17.", "p65."}) {
      const auto tensor = [&](const char* name) -> const Tensor& { return reference.at(std::string(prompt) + name); };
      TestModel model = Make(3, isa);
      const std::vector<int32_t> ids = tensor("input_ids").AsInts();
      const std::vector<int32_t> all = {static_cast<int32_t>(ids.size())};
      model.Run(ids, all);
      std::vector<int32_t> next(ids.begin() + 1, ids.end());
      next.push_back(tensor("next_token").AsInts()[0]);
      std::vector<int32_t> drafts(next.size());
      model.model().RunDraft(PlanOf(next, 0, model::DraftPlan::Source::kStep), drafts);
      EXPECT_EQ(drafts, tensor("draft_argmax").AsInts()) << prompt << device::IsaName(isa);
      const Tensor& want = tensor("draft_logits");
      const auto skipped = static_cast<int64_t>(next.size()) - want.rows();
      double worst = 0;
      // RunDraft leaves the logits of the drafts where those of the step were, one row for each row here.
      const MatView<float> logits = model.model().logits();
      for (int64_t r = 0; r < want.rows(); ++r) {
        for (int64_t c = 0; c < want.cols(); ++c) {
          const double got = static_cast<double>(logits.row(static_cast<int32_t>(r + skipped))[c]);
          worst = std::max(worst, std::abs(got - want.row(r)[static_cast<size_t>(c)]));
        }
      }
      EXPECT_LT(worst, 1e-3) << prompt << device::IsaName(isa);  // rule 1 of the README

      std::vector<int32_t> recursive = {drafts.back()};
      for (int32_t pass = 2; pass <= 3; ++pass) {
        model::DraftPlan plan =
            PlanOf({&recursive.back(), 1}, static_cast<int32_t>(ids.size()) + pass - 2, model::DraftPlan::Source::kDraft);
        if (pass == 2) plan.source_rows[0] = static_cast<int32_t>(next.size()) - 1;
        int32_t draft = -1;
        model.model().RunDraft(plan, {&draft, 1});
        recursive.push_back(draft);
      }
      EXPECT_EQ(recursive, tensor("drafts").AsInts()) << prompt << device::IsaName(isa);
    }
  }
}

TEST_P(GoldenDrafts, GreedyRuns_EmitStepByStepWhatTheTracesEmit) {
  std::ifstream file(Folder() + "/traces.json");
  const Json traces = Json::parse(file).at("traces");
  for (const Json& trace : traces) {
    const auto k = trace.at("k").get<int32_t>();
    TestModel test = Make(k, IsasUnderTest().back());
    engine::EngineOptions options;
    options.max_num_seqs = 4;
    options.max_num_batched_tokens = 128;
    options.max_model_len = 256;
    options.num_drafts = k;
    options.draft_depth = engine::DraftDepthPolicy::kMost;
    options.vocab_size = test.model().shape().vocab_rows;
    engine::EngineCore core(options, test.model(), test.model().num_workers());
    engine::Request request;
    request.id = 1;
    request.prompt = trace.at("input_ids").get<std::vector<int32_t>>();
    request.sampling.temperature = 0;
    // Drafts beyond the end would be cut; the traces do not cut.
    request.sampling.max_tokens = static_cast<int32_t>(trace.at("tokens").size()) + k + 1;
    const engine::Clock::time_point now = engine::Clock::now();
    core.Add(request, now);
    std::vector<engine::RequestEvent> events;
    const auto step = [&] {
      core.Step(now);
      core.TakeEvents(events);
      std::vector<int32_t> tokens;
      for (const engine::RequestEvent& event : events) {
        for (const engine::OutputToken& token : event.tokens) tokens.push_back(token.id);
      }
      return tokens;
    };
    const std::string where = trace.at("prompt").get<std::string>() + " k=" + std::to_string(k);
    EXPECT_EQ(step(), std::vector<int32_t>{trace.at("first_token").get<int32_t>()}) << where;
    for (const Json& want : trace.at("steps")) ASSERT_EQ(step(), want.at("emitted").get<std::vector<int32_t>>()) << where;
    core.AbortAll();
    core.CheckIdle();
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, GoldenDrafts, testing::Values("b-moe-mtp", "c-vl-moe-mtp"), [](const auto& parameter) {
  std::string name = parameter.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace avocet::test
