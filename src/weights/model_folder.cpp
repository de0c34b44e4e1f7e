#include "weights/model_folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/printable.h"
#include "weights/mapped_file.h"

namespace fs = std::filesystem;

namespace avocet::weights {
namespace {

bool IsInside(const std::string& path, const std::string& folder) {
  return !folder.empty() && path.size() > folder.size() && path.starts_with(folder) && (folder == "/" || path[folder.size()] == '/');
}

bool IsPlainRelative(std::string_view name) {
  if (name.empty() || name.find('\0') != std::string_view::npos) return false;
  const fs::path path(name);
  return path.is_relative() && std::ranges::none_of(path, [](const fs::path& part) { return part == ".."; });
}

}  // namespace

Result<ModelFolder> ModelFolder::Open(const std::string& model_dir) {
  std::error_code error;
  const fs::path root = fs::canonical(model_dir, error);
  if (error) return Fail(Errc::kNotFound, "no model folder {}: {}", Printable(model_dir, 4096), error.message());
  if (!fs::is_directory(root, error)) return Fail(Errc::kInvalidArgument, "{} is not a folder", Printable(model_dir, 4096));

  ModelFolder folder;
  folder.path_ = model_dir;
  folder.root_ = root.string();
  if (root.parent_path().filename() == "snapshots") folder.blobs_ = (root.parent_path().parent_path() / "blobs").string();
  return folder;
}

Result<std::string> ModelFolder::Resolve(std::string_view name) const {
  if (!IsPlainRelative(name)) {
    return Fail(Errc::kInvalidArgument, "{}: file name \"{}\" leads out of the model folder", path_, Printable(name));
  }
  std::error_code error;
  const std::string real = fs::canonical(fs::path(root_) / name, error).string();
  if (error == std::errc::no_such_file_or_directory) {
    return Fail(Errc::kNotFound, "{}: no file {} (incomplete download?)", path_, Printable(name));
  }
  if (error) return Fail(Errc::kIo, "{}: cannot open {}: {}", path_, Printable(name), error.message());
  // blobs_ follows from a path without links: were it a link itself, nothing would lie inside its spelling.
  if (!IsInside(real, root_) && !IsInside(real, blobs_)) {
    return Fail(Errc::kInvalidArgument, "{}: {} is a link out of the model folder, to {}", path_, Printable(name), Printable(real));
  }
  return real;
}

Result<std::vector<std::string>> ModelFolder::List(std::string_view suffix) const {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator it(root_, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    std::string name = it->path().filename().string();
    if (name.ends_with(suffix)) names.push_back(std::move(name));
  }
  if (error) return Fail(Errc::kIo, "cannot list {}: {}", path_, error.message());
  std::ranges::sort(names);
  return names;
}

Result<std::string> ReadModelFile(const ModelFolder& folder, std::string_view name, size_t bytes_max) {
  AVOCET_TRY(const std::string path, folder.Resolve(name));
  AVOCET_TRY(const MappedFile file, MappedFile::Open(path));
  if (file.bytes().size() > bytes_max) {
    return Fail(Errc::kCorrupt, "{}/{} has {} bytes, at most {} are read", folder.path(), name, file.bytes().size(), bytes_max);
  }
  return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

}  // namespace avocet::weights
