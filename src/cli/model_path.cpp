#include "cli/model_path.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "base/printable.h"

namespace avocet::cli {
namespace {

namespace fs = std::filesystem;

std::string Get(const Environment& environment, std::string_view name) {
  for (const auto& [key, value] : environment) {
    if (key == name) return value;
  }
  return {};
}

bool IsFolder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// "org/name", or "name" alone: what a hub accepts as an id, and what cannot lead out of a cache.
bool IsModelId(std::string_view text) {
  if (text.empty() || text.size() > 200 || std::count(text.begin(), text.end(), '/') > 1) return false;
  if (text.front() == '.' || text.front() == '/' || text.back() == '/' || text.find("..") != std::string_view::npos) return false;
  return std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '/'; });
}

std::vector<fs::path> HubCaches(const Options& options, const Environment& environment) {
  std::vector<fs::path> caches;
  if (!options.download_dir.empty()) caches.emplace_back(options.download_dir);
  if (const std::string cache = Get(environment, "HF_HUB_CACHE"); !cache.empty()) caches.emplace_back(cache);
  if (const std::string home = Get(environment, "HF_HOME"); !home.empty()) caches.push_back(fs::path(home) / "hub");
  if (const std::string home = Get(environment, "HOME"); !home.empty()) caches.push_back(fs::path(home) / ".cache/huggingface/hub");
  return caches;
}

std::string ReadWord(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word.substr(0, 200);
}

// CACHE/models--org--name/snapshots/<commit>, the commit by branch or tag through refs/.
fs::path FindInHub(const fs::path& cache, std::string id, const std::string& revision) {
  for (size_t slash = id.find('/'); slash != std::string::npos; slash = id.find('/')) id.replace(slash, 1, "--");
  const fs::path model = cache / ("models--" + id);
  const std::string wanted = revision.empty() ? "main" : revision;
  if (!IsModelId(wanted)) return {};
  if (IsFolder(model / "snapshots" / wanted)) return model / "snapshots" / wanted;
  const std::string commit = ReadWord(model / "refs" / wanted);
  if (!commit.empty() && IsModelId(commit) && IsFolder(model / "snapshots" / commit)) return model / "snapshots" / commit;
  return {};
}

// ModelScope keeps plain folders and writes a dot in a name as three underscores.
fs::path FindInModelScope(const Environment& environment, const std::string& id) {
  fs::path cache = Get(environment, "MODELSCOPE_CACHE");
  if (cache.empty()) cache = fs::path(Get(environment, "HOME")) / ".cache/modelscope";
  std::string escaped;
  for (const char c : id) escaped += c == '.' ? std::string("___") : std::string(1, c);
  for (const fs::path& base : {cache / "hub/models", cache / "models", cache / "hub", cache}) {
    for (const std::string& name : {id, escaped}) {
      if (IsFolder(base / name)) return base / name;
    }
  }
  return {};
}

Result<ModelPath> FindDemo(const Environment& environment) {
  std::vector<fs::path> places;
  if (const std::string given = Get(environment, "AVOCET_DEMO_MODEL"); !given.empty()) {
    if (!IsFolder(given)) return Fail(Errc::kNotFound, "AVOCET_DEMO_MODEL names {}, which is no folder", Printable(given));
    places.emplace_back(given);
  }
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  // In the repository, build/release/bin/avocet; installed, bin/avocet beside share/.
  for (const char* relative : {"../../../models/demo", "../share/avocet/models/demo"}) places.push_back(folder / relative);
  for (const fs::path& place : places) {
    if (!IsFolder(place)) continue;
    return ModelPath{fs::weakly_canonical(place, error).string(), "demo", "no MODEL was given: this is the bundled demo model", true};
  }
  return Fail(Errc::kNotFound,
              "no MODEL was given and the bundled demo model is not beside the program ({}); name a folder, or set AVOCET_DEMO_MODEL",
              places.front().lexically_normal().string());
}

}  // namespace

Result<ModelPath> FindModel(const Options& options, const Environment& environment) {
  const std::string& model = options.model;
  if (model.empty()) return FindDemo(environment);
  if (IsFolder(model)) return ModelPath{model, model, "", false};
  std::error_code error;
  if (fs::exists(model, error)) {
    return Fail(Errc::kInvalidArgument, "{} is a file; MODEL is a folder with config.json and safetensors files", Printable(model));
  }
  if (!IsModelId(model)) return Fail(Errc::kNotFound, "there is no folder {}", Printable(model));

  const std::string use_modelscope = Get(environment, "VLLM_USE_MODELSCOPE");
  if (use_modelscope == "1" || use_modelscope == "true" || use_modelscope == "True") {
    if (const fs::path found = FindInModelScope(environment, model); !found.empty()) {
      return ModelPath{found.string(), model, "found in ModelScope's cache", false};
    }
  }
  const std::vector<fs::path> caches = HubCaches(options, environment);
  for (const fs::path& cache : caches) {
    if (const fs::path found = FindInHub(cache, model, options.revision); !found.empty()) {
      return ModelPath{found.string(), model, "found in the hub cache", false};
    }
  }
  return Fail(Errc::kNotFound, "there is no folder {} and no model of that name in {}; nothing is downloaded: give the folder of the model",
              Printable(model), caches.empty() ? "a hub cache (HF_HOME is not set)" : caches.front().string());
}

}  // namespace avocet::cli
