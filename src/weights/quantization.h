// How the matrices of a checkpoint are stored where they are not plain floats.
//
// Ascend (msModelSlim, "ascendV1"): quant_model_description.json has one entry per tensor name, its type. Beside X.weight (int8 [N, K]):
//   W8A8_DYNAMIC  X.weight_scale f32 [N, 1], X.weight_offset (zeros): the left operand is rounded row by row
//   W8A8          X.input_scale [1], X.input_offset [1], X.deq_scale f32 [N] or int64 [N] with the bits of an f32, X.quant_bias int32 [N];
//                 X.weight_scale and X.weight_offset may be there and are not needed
//   FLOAT         as it is
// compressed-tensors (int-quantized) stores the same as W8A8_DYNAMIC, without offsets, and bf16 scales; config.json announces it.
// FP8 releases (quant_method fp8): X.weight F8_E4M3 [N, K], X.weight_scale_inv [N/128, K/128] rounded up; w = fp8 * scale of its block.
// They become bf16 at load, or int8 with --quantization int8.
// Formats: the design's deployment notes, A.2 and A.3.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/error.h"

namespace avocet::weights {

enum class StoredType : uint8_t {
  kFloat,
  kInt8Dynamic,
  kInt8Static,
  kOther,  // a type of the format that is not served: refused where the model uses it
};

class QuantDescription {
 public:
  static constexpr const char* kFileName = "quant_model_description.json";

  // Of the folder; nullopt when it has none.
  static Result<std::optional<QuantDescription>> Load(const std::string& model_dir);
  // `file` names the text in messages. A type that the format does not have is refused by the tensor's name.
  static Result<QuantDescription> Parse(std::string_view file, std::string_view json);

  bool Has(const std::string& tensor) const { return types_.contains(tensor); }
  // kFloat for tensors without an entry.
  StoredType TypeOf(const std::string& tensor) const;
  // As written, for messages; empty without an entry.
  std::string_view TypeTextOf(const std::string& tensor) const;

 private:
  std::unordered_map<std::string, uint8_t> types_;  // index into the table of types
};

// What the loader does with the matrices of products. Routers, gates and embeddings of their own stay float.
struct Quantization {
  const QuantDescription* description = nullptr;  // of the checkpoint, or nullptr
  bool by_dtype = false;                          // compressed-tensors: an I8 tensor X.weight has X.weight_scale beside it
  int32_t fp8_block = 0;                          // FP8 releases: an F8_E4M3 X.weight has X.weight_scale_inv, one for every block x block
  bool rounds_floats = false;                     // --quantization int8: float matrices become int8 at load, as W8A8_DYNAMIC

  bool has_int8() const { return description != nullptr || by_dtype || rounds_floats; }
};

}  // namespace avocet::weights
