// Golden data for tests: a reader of reference tensors that shares no code with the product, and a model built from a checkpoint
// folder that runs prompts in any chunking. AVOCET_GOLDEN names another folder of the same layout than tests/data/golden.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/cpu_features.h"
#include "device/worker_pool.h"
#include "model/model.h"

namespace avocet::test {

std::string GoldenDir();

// Every tensor of a safetensors file, widened to double (integers exactly).
struct Tensor {
  std::vector<int64_t> shape;
  std::vector<double> values;

  int64_t rows() const { return shape.empty() ? 1 : shape[0]; }
  int64_t cols() const;  // product of all but the first dimension
  std::span<const double> row(int64_t r) const;
  std::vector<int32_t> AsInts() const;
};
std::map<std::string, Tensor> ReadTensors(const std::string& path);

// Checkpoints of the golden set that this engine loads: folders with plain safetensors names below checkpoints/.
std::vector<std::string> GoldenCheckpoints();

struct TestModelOptions {
  model::Precision precision = model::Precision::kNative;
  device::Isa isa = device::Isa::kRef;
  int32_t workers = 1;
  int32_t page_tokens = 16;
  int32_t max_rows = 512;
  int32_t num_pages = 256;
  int32_t num_slots = 8;
  bool rounds_to_int8 = false;  // --quantization int8
  int32_t num_drafts = 0;
};

// The kernel families of this machine, or the one that AVOCET_ISA names.
std::vector<device::Isa> IsasUnderTest();

// A loaded model and hand-made plans for it.
class TestModel {
 public:
  TestModel(const std::string& model_dir, const TestModelOptions& options);

  // Runs `ids` as sequence positions first_position.. in chunks of the given sizes (the last one repeats), on the given slot with
  // pages from page_offset on. Returns the logits of every position, [ids.size()][vocab_rows].
  std::vector<std::vector<float>> Run(std::span<const int32_t> ids, std::span<const int32_t> chunks, int32_t first_position = 0,
                                      SlotId slot = SlotId{0}, int32_t page_offset = 0);
  // Several sequences in one step, all rows of each; logits in row order.
  struct Part {
    std::vector<int32_t> ids;
    int32_t first_position = 0;
    SlotId slot{0};
    int32_t page_offset = 0;
  };
  std::vector<std::vector<float>> RunStep(std::span<const Part> parts);

  model::Model& model() { return *model_; }

 private:
  int32_t page_tokens_ = 0;
  std::unique_ptr<device::WorkerPool> pool_;
  std::unique_ptr<model::Model> model_;
};

}  // namespace avocet::test
