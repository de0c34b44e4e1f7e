#include "support/golden.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include <nlohmann/json.hpp>

#include "base/bf16.h"
#include "base/check.h"
#include "model/config.h"
#include "model/model_weights.h"

namespace avocet::test {
namespace {

double ElementAt(const std::string& dtype, const char* bytes, size_t i) {
  const auto read = [&]<typename T>(T) {
    T value;
    std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
    return value;
  };
  if (dtype == "F32") return static_cast<double>(read(float{}));
  if (dtype == "F64") return read(double{});
  if (dtype == "BF16") return static_cast<double>(ToF32(Bf16{read(uint16_t{})}));
  if (dtype == "F16") return static_cast<double>(ToF32(F16{read(uint16_t{})}));
  if (dtype == "I8") return read(int8_t{});
  if (dtype == "U8") return read(uint8_t{});
  if (dtype == "I16") return read(int16_t{});
  if (dtype == "I32") return read(int32_t{});
  if (dtype == "I64") return static_cast<double>(read(int64_t{}));
  CHECK(false, "reference tensors of type {} are not read", dtype);
  return 0;
}

}  // namespace

std::string GoldenDir() {
  const char* other = std::getenv("AVOCET_GOLDEN");
  return other != nullptr ? other : std::string(AVOCET_TEST_DATA) + "/golden";
}

int64_t Tensor::cols() const {
  return shape.empty() ? 1 : std::accumulate(shape.begin() + 1, shape.end(), int64_t{1}, std::multiplies<>());
}

std::span<const double> Tensor::row(int64_t r) const {
  return {values.data() + r * cols(), static_cast<size_t>(cols())};
}

std::vector<int32_t> Tensor::AsInts() const {
  std::vector<int32_t> ints;
  for (double value : values) ints.push_back(static_cast<int32_t>(value));
  return ints;
}

std::map<std::string, Tensor> ReadTensors(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  CHECK(file.good(), "cannot open {}", path);
  uint64_t header_bytes = 0;
  file.read(reinterpret_cast<char*>(&header_bytes), 8);
  std::string header(header_bytes, '\0');
  file.read(header.data(), static_cast<std::streamsize>(header_bytes));
  std::string data((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::map<std::string, Tensor> tensors;
  const nlohmann::json entries = nlohmann::json::parse(header);
  for (const auto& [name, entry] : entries.items()) {
    if (name == "__metadata__") continue;
    Tensor& tensor = tensors[name];
    tensor.shape = entry["shape"].get<std::vector<int64_t>>();
    const auto count = static_cast<size_t>(std::accumulate(tensor.shape.begin(), tensor.shape.end(), int64_t{1}, std::multiplies<>()));
    const char* bytes = data.data() + entry["data_offsets"][0].get<size_t>();
    for (size_t i = 0; i < count; ++i) tensor.values.push_back(ElementAt(entry["dtype"], bytes, i));
  }
  return tensors;
}

std::vector<std::string> GoldenCheckpoints() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(GoldenDir() + "/checkpoints")) {
    const std::filesystem::path path = entry.path();
    const bool has_quant_description = std::filesystem::exists(path / "quant_model_description.json");
    std::ifstream config(path / "config.json");
    const std::string text((std::istreambuf_iterator<char>(config)), std::istreambuf_iterator<char>());
    const bool is_quantized = has_quant_description || text.find("quantization_config") != std::string::npos;
    const bool has_reference = std::filesystem::exists(GoldenDir() + "/ref/" + path.filename().string());
    if (!is_quantized && has_reference) names.push_back(path.filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<device::Isa> IsasUnderTest() {
  const device::CpuFeatures cpu = device::DetectCpu();
  if (std::getenv("AVOCET_ISA") != nullptr) return {device::ChooseIsa(cpu).value()};
  std::vector<device::Isa> isas;
  for (device::Isa isa : {device::Isa::kRef, device::Isa::kAvx2, device::Isa::kAvx512, device::Isa::kAvx512Bf16}) {
    if (cpu.Supports(isa)) isas.push_back(isa);
  }
  return isas;
}

TestModel::TestModel(const std::string& model_dir, const TestModelOptions& options) : page_tokens_(options.page_tokens) {
  device::WorkerPoolOptions pool_options;
  pool_options.cpus.assign(static_cast<size_t>(options.workers), -1);
  pool_ = device::WorkerPool::Create(pool_options).value();
  auto config = model::LoadConfig(model_dir);
  CHECK(config.has_value(), "{}: {}", model_dir, config.error().message);
  config->num_drafts = options.num_drafts;
  model::LoadOptions load;
  if (options.precision == model::Precision::kF32) load.policy = weights::WeightPolicy::kExact;
  const auto description = weights::QuantDescription::Load(model_dir);
  CHECK(description.has_value(), "{}: {}", model_dir, description.error().message);
  load.quantization = {*description ? &**description : nullptr, config->int8_by_dtype, config->fp8_block, options.rounds_to_int8};
  model::LoadReport report;
  auto weights = model::LoadModelWeights(*config, model_dir, *pool_, load, &report);
  CHECK(weights.has_value(), "{}: {}", model_dir, weights.error().message);
  const model::ModelOptions model_options{.precision = options.precision,
                                          .max_rows = options.max_rows,
                                          .max_logit_rows = options.max_rows,
                                          .max_context = std::min(config->max_positions, options.num_pages * options.page_tokens),
                                          .page_tokens = options.page_tokens,
                                          .num_pages = options.num_pages,
                                          .num_slots = options.num_slots};
  auto model = model::Model::Create(*config, std::move(*weights), model_options, ops::KernelsFor(options.isa), *pool_);
  CHECK(model.has_value(), "{}: {}", model_dir, model.error().message);
  model_ = std::move(*model);
}

std::vector<std::vector<float>> TestModel::Run(std::span<const int32_t> ids, std::span<const int32_t> chunks, int32_t first_position,
                                               SlotId slot, int32_t page_offset) {
  std::vector<std::vector<float>> all;
  size_t next = 0;
  for (size_t chunk = 0; next < ids.size(); ++chunk) {
    const auto want = static_cast<size_t>(chunks[std::min(chunk, chunks.size() - 1)]);
    const size_t count = std::min(want, ids.size() - next);
    const Part part{{ids.begin() + static_cast<ptrdiff_t>(next), ids.begin() + static_cast<ptrdiff_t>(next + count)},
                    first_position + static_cast<int32_t>(next),
                    slot,
                    page_offset};
    for (auto& row : RunStep({&part, 1})) all.push_back(std::move(row));
    next += count;
  }
  return all;
}

std::vector<std::vector<float>> TestModel::RunStep(std::span<const Part> parts) {
  model::StepPlan plan;
  std::vector<int32_t> positions;
  for (const Part& part : parts) {
    const auto num_rows = static_cast<int32_t>(part.ids.size());
    const int32_t num_pages = (part.first_position + num_rows + page_tokens_ - 1) / page_tokens_;
    plan.sequences.push_back({.row_begin = plan.num_rows(),
                              .num_rows = num_rows,
                              .first_position = part.first_position,
                              .num_drafts = 0,
                              .num_pending = 0,
                              .page_begin = static_cast<int32_t>(plan.pages.size()),
                              .num_pages = num_pages,
                              .slot = part.slot});
    for (int32_t i = 0; i < num_pages; ++i) plan.pages.push_back(PageId{part.page_offset + i});
    for (int32_t i = 0; i < num_rows; ++i) {
      plan.logit_rows.push_back(plan.num_rows());
      plan.token_ids.push_back(part.ids[static_cast<size_t>(i)]);
      positions.push_back(part.first_position + i);
    }
  }
  for (int axis = 0; axis < 3; ++axis) plan.positions.insert(plan.positions.end(), positions.begin(), positions.end());
  model_->Run(plan, [](device::Worker&) {});
  std::vector<std::vector<float>> rows;
  const MatView<float> logits = model_->logits();
  for (int32_t r = 0; r < logits.rows; ++r) rows.emplace_back(logits.row(r), logits.row(r) + logits.cols);
  return rows;
}

}  // namespace avocet::test
