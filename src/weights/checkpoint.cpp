#include "weights/checkpoint.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/limits.h"
#include "base/printable.h"
#include "weights/mapped_file.h"
#include "weights/model_folder.h"

namespace avocet::weights {

struct Checkpoint::Impl {
  std::string model_dir;
  std::vector<std::string> files;
  std::vector<MappedFile> mappings;
  std::vector<TensorInfo> tensors;
  std::unordered_map<std::string_view, const TensorInfo*> by_name;  // into tensors
  size_t total_bytes = 0;

  Result<void> AddFile(const ModelFolder& folder, const std::string& name);
  Result<void> BuildNameTable();
  Result<void> CheckIndex(std::string_view index_file, const SafetensorsIndex& index) const;
};

namespace {

constexpr std::string_view kIndexSuffix = ".safetensors.index.json";
constexpr std::string_view kIndexDefault = "model.safetensors.index.json";
constexpr std::string_view kSingleDefault = "model.safetensors";

// The index file of the folder; empty when it has none.
Result<std::string> FindIndex(const ModelFolder& folder) {
  AVOCET_TRY(const std::vector<std::string> names, folder.List(kIndexSuffix));
  if (names.empty()) return std::string();
  if (names.size() == 1) return names.front();
  if (std::ranges::find(names, kIndexDefault) != names.end()) return std::string(kIndexDefault);
  return Fail(Errc::kCorrupt, "{} has {} index files, {} and {} among them, and no {}: which one is meant?", folder.path(), names.size(),
              names[0], names[1], kIndexDefault);
}

Result<std::vector<std::string>> FilesWithoutIndex(const ModelFolder& folder) {
  AVOCET_TRY(std::vector<std::string> names, folder.List(".safetensors"));
  if (std::ranges::find(names, kSingleDefault) != names.end()) return std::vector{std::string(kSingleDefault)};
  if (names.empty()) return Fail(Errc::kNotFound, "{} has no *.safetensors file; other weight formats are not read", folder.path());
  if (names.size() > limits::kShardsMax) {
    return Fail(Errc::kCorrupt, "{} has {} *.safetensors files, at most {} are read", folder.path(), names.size(), limits::kShardsMax);
  }
  return names;
}

}  // namespace

int64_t TensorInfo::NumElements() const {
  return static_cast<int64_t>(bytes.size() / DTypeBytes(dtype));
}

std::string TensorInfo::Describe() const {
  return fmt::format("{} {}", DTypeName(dtype), ShapeText(shape));
}

Result<void> Checkpoint::Impl::AddFile(const ModelFolder& folder, const std::string& name) {
  AVOCET_TRY(const std::string path, folder.Resolve(name));
  AVOCET_TRY(MappedFile mapping, MappedFile::Open(path));
  AVOCET_TRY(std::vector<TensorEntry> entries, ParseSafetensors(fmt::format("{}/{}", folder.path(), name), mapping.bytes()));
  if (tensors.size() + entries.size() > limits::kTensorsMax) {
    return Fail(Errc::kCorrupt, "{} has more than {} tensors", folder.path(), limits::kTensorsMax);
  }
  const int32_t file = static_cast<int32_t>(files.size());
  for (TensorEntry& entry : entries) {
    const std::span<const std::byte> bytes = mapping.bytes().subspan(entry.begin, entry.end - entry.begin);
    total_bytes += bytes.size();
    tensors.push_back({std::move(entry.name), entry.dtype, std::move(entry.shape), bytes, file});
  }
  files.push_back(name);
  mappings.push_back(std::move(mapping));
  return {};
}

Result<void> Checkpoint::Impl::BuildNameTable() {
  std::ranges::sort(tensors, {}, &TensorInfo::name);
  by_name.reserve(tensors.size());
  for (const TensorInfo& tensor : tensors) {
    const auto [it, is_new] = by_name.try_emplace(tensor.name, &tensor);
    if (is_new) continue;
    const std::string& first = files[static_cast<size_t>(it->second->file)];
    const std::string& second = files[static_cast<size_t>(tensor.file)];
    if (it->second->file == tensor.file) return Fail(Errc::kCorrupt, "{}/{}: tensor {} is listed twice", model_dir, first, tensor.name);
    return Fail(Errc::kCorrupt, "{}: tensor {} is in two files, {} and {}", model_dir, tensor.name, first, second);
  }
  return {};
}

// Every entry of the index is where it says. Files may hold more than the index names: whether a tensor is used is the loader's question.
Result<void> Checkpoint::Impl::CheckIndex(std::string_view index_file, const SafetensorsIndex& index) const {
  for (const IndexEntry& entry : index.entries) {
    const auto it = by_name.find(entry.tensor);
    const std::string& file = files[static_cast<size_t>(entry.file)];
    if (it == by_name.end()) {
      return Fail(Errc::kCorrupt, "{}/{} names tensor {} in {}, which lacks it", model_dir, index_file, entry.tensor, file);
    }
    if (it->second->file != entry.file) {
      return Fail(Errc::kCorrupt, "{}/{} names tensor {} in {}, but it is in {}", model_dir, index_file, entry.tensor, file,
                  files[static_cast<size_t>(it->second->file)]);
    }
  }
  return {};
}

Result<Checkpoint> Checkpoint::Open(const std::string& model_dir) {
  AVOCET_TRY(const ModelFolder folder, ModelFolder::Open(model_dir));
  AVOCET_TRY(const std::string index_file, FindIndex(folder));
  auto impl = std::make_unique<Impl>();
  impl->model_dir = model_dir;

  SafetensorsIndex index;
  std::vector<std::string> names;
  if (!index_file.empty()) {
    AVOCET_TRY(const std::string json, ReadModelFile(folder, index_file, limits::kSafetensorsHeaderBytesMax));
    AVOCET_TRY(index, ParseSafetensorsIndex(fmt::format("{}/{}", model_dir, index_file), json));
    if (index.files.empty()) return Fail(Errc::kCorrupt, "{}/{} names no tensor", model_dir, index_file);
    names = index.files;
    // All files before any header: an incomplete download is the common case, and its message should not wait for a large shard.
    for (const std::string& name : names) {
      AVOCET_TRY([[maybe_unused]] const std::string path, folder.Resolve(name));
    }
  } else {
    AVOCET_TRY(names, FilesWithoutIndex(folder));
  }
  for (const std::string& name : names) AVOCET_TRY_VOID(impl->AddFile(folder, name));
  AVOCET_TRY_VOID(impl->BuildNameTable());
  AVOCET_TRY_VOID(impl->CheckIndex(index_file, index));
  return Checkpoint(std::move(impl));
}

Checkpoint::Checkpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

const TensorInfo* Checkpoint::Find(std::string_view name) const {
  const auto it = impl_->by_name.find(name);
  return it == impl_->by_name.end() ? nullptr : it->second;
}

Result<void> Checkpoint::Read(const TensorInfo& tensor, size_t offset, std::span<std::byte> out) const {
  const MappedFile& file = impl_->mappings[static_cast<size_t>(tensor.file)];
  const auto begin = static_cast<size_t>(tensor.bytes.data() - file.bytes().data());
  const Result<void> read = file.Read(begin + offset, out);
  if (!read) return Fail(Errc::kIo, "{}: reading tensor {} failed: {}", PathOf(tensor), tensor.name, read.error().message);
  return {};
}

std::string Checkpoint::PathOf(const TensorInfo& tensor) const {
  return fmt::format("{}/{}", impl_->model_dir, impl_->files[static_cast<size_t>(tensor.file)]);
}

std::span<const TensorInfo> Checkpoint::tensors() const {
  return impl_->tensors;
}
std::span<const std::string> Checkpoint::files() const {
  return impl_->files;
}
size_t Checkpoint::total_bytes() const {
  return impl_->total_bytes;
}
const std::string& Checkpoint::model_dir() const {
  return impl_->model_dir;
}

}  // namespace avocet::weights
