#include "cli/model_path.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace avocet::cli {
namespace {

namespace fs = std::filesystem;
using testing::EndsWith;
using testing::HasSubstr;

class ModelPathTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / fmt::format("avocet-model-path-{}", getpid());
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  Result<ModelPath> Find(const std::string& model, const Environment& environment = {}, const std::string& revision = "") {
    Options options;
    options.model = model;
    options.revision = revision;
    return FindModel(options, environment);
  }
  std::string ErrorOf(const std::string& model, const Environment& environment = {}) {
    const Result<ModelPath> path = Find(model, environment);
    return path ? "(found " + path->dir + ")" : path.error().message;
  }
  fs::path root_;
};

TEST_F(ModelPathTest, Folder_IsTakenAsWritten) {
  const auto path = Find(root_.string());
  ASSERT_TRUE(path);
  EXPECT_EQ(path->dir, root_.string());
  EXPECT_EQ(path->name, root_.string());
  EXPECT_FALSE(path->is_demo);
}

TEST_F(ModelPathTest, MissingThings_AreNamed) {
  EXPECT_THAT(ErrorOf("/no/such/folder"), HasSubstr("/no/such/folder"));
  EXPECT_THAT(ErrorOf("Org/Name", {{"HF_HOME", root_.string()}}), HasSubstr("nothing is downloaded"));
  EXPECT_THAT(ErrorOf("../up"), HasSubstr("no folder"));
  std::ofstream(root_ / "file") << "x";
  EXPECT_THAT(ErrorOf((root_ / "file").string()), HasSubstr("is a file"));
}

TEST_F(ModelPathTest, HubId_IsFoundInTheCache) {
  const fs::path model = root_ / "hub/models--Org--Name-1.5";
  fs::create_directories(model / "snapshots/abc123");
  fs::create_directories(model / "refs");
  std::ofstream(model / "refs/main") << "abc123\n";
  const auto path = Find("Org/Name-1.5", {{"HF_HOME", root_.string()}});
  ASSERT_TRUE(path) << path.error().message;
  EXPECT_THAT(path->dir, EndsWith("snapshots/abc123"));
  EXPECT_EQ(path->name, "Org/Name-1.5");
  EXPECT_TRUE(Find("Org/Name-1.5", {{"HF_HUB_CACHE", (root_ / "hub").string()}}, "abc123"));
  EXPECT_FALSE(Find("Org/Name-1.5", {{"HF_HOME", root_.string()}}, "other"));
  EXPECT_FALSE(Find("Org/Name-1.5", {{"HF_HOME", root_.string()}}, "../../.."));
}

TEST_F(ModelPathTest, HostileRef_DoesNotLeadOut) {
  const fs::path model = root_ / "hub/models--a--b";
  fs::create_directories(model / "refs");
  fs::create_directories(model / "snapshots");
  std::ofstream(model / "refs/main") << "../../../../../../tmp";
  EXPECT_FALSE(Find("a/b", {{"HF_HOME", root_.string()}}));
}

TEST_F(ModelPathTest, ModelScopeCache_IsLookedAtWhenAsked) {
  fs::create_directories(root_ / "hub/models/Org/Name-1___5");
  EXPECT_FALSE(Find("Org/Name-1.5", {{"MODELSCOPE_CACHE", root_.string()}}));
  EXPECT_TRUE(Find("Org/Name-1.5", {{"MODELSCOPE_CACHE", root_.string()}, {"VLLM_USE_MODELSCOPE", "true"}}));
}

TEST_F(ModelPathTest, NoModel_IsTheDemo) {
  const auto path = Find("", {{"AVOCET_DEMO_MODEL", root_.string()}});
  ASSERT_TRUE(path);
  EXPECT_TRUE(path->is_demo);
  EXPECT_EQ(path->name, "demo");
  EXPECT_THAT(ErrorOf("", {{"AVOCET_DEMO_MODEL", "/no/such"}}), HasSubstr("AVOCET_DEMO_MODEL"));
}

}  // namespace
}  // namespace avocet::cli
