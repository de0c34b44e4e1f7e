#include "weights/checkpoint.h"

#include <sys/stat.h>

#include <chrono>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/safetensors_writer.h"

namespace avocet::weights {
namespace {

namespace fs = std::filesystem;
using test::Bf16Bytes;
using test::IndexFile;
using test::SafetensorsFile;
using test::TempDir;
using testing::HasSubstr;

std::string OneTensor(const std::string& name) {
  return SafetensorsFile({{name, "BF16", {2}, Bf16Bytes({1, 2})}});
}

std::string RefusalOf(const std::string& model_dir) {
  const auto checkpoint = Checkpoint::Open(model_dir);
  if (checkpoint) return "accepted";
  EXPECT_EQ(checkpoint.error().message.find('\n'), std::string::npos);
  return checkpoint.error().message;
}

TEST(Checkpoint, SingleFile_TensorsFoundByNameWithTheirBytes) {
  TempDir dir;
  dir.Write("model.safetensors", SafetensorsFile({{"b", "BF16", {2}, Bf16Bytes({1, 2})}, {"a", "U8", {3}, "xyz"}}));
  const auto checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  ASSERT_EQ(checkpoint->tensors().size(), 2u);
  EXPECT_EQ(checkpoint->tensors()[0].name, "a");
  EXPECT_EQ(checkpoint->total_bytes(), 7u);
  const TensorInfo* tensor = checkpoint->Find("a");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->Describe(), "U8 [3]");
  EXPECT_EQ(tensor->NumElements(), 3);
  EXPECT_EQ(std::memcmp(tensor->bytes.data(), "xyz", 3), 0);
  EXPECT_EQ(checkpoint->Find("c"), nullptr);
}

TEST(Checkpoint, Shards_FoundThroughTheIndex) {
  TempDir dir;
  dir.Write("m-1.safetensors", OneTensor("a"));
  dir.Write("m-2.safetensors", OneTensor("b"));
  dir.Write("other.safetensors", OneTensor("a"));  // not in the index: not read
  dir.Write("model.safetensors.index.json", IndexFile({{"a", "m-1.safetensors"}, {"b", "m-2.safetensors"}}));
  const auto checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->tensors().size(), 2u);
  EXPECT_EQ(checkpoint->files()[static_cast<size_t>(checkpoint->Find("b")->file)], "m-2.safetensors");
}

TEST(Checkpoint, IndexOfAnotherStem_Found) {
  TempDir dir;
  dir.Write("quant_model_weights-1.safetensors", OneTensor("a"));
  dir.Write("quant_model_weights.safetensors.index.json", IndexFile({{"a", "quant_model_weights-1.safetensors"}}));
  EXPECT_EQ(RefusalOf(dir.path()), "accepted");
  dir.Write("zzz.safetensors.index.json", IndexFile({{"a", "quant_model_weights-1.safetensors"}}));
  EXPECT_THAT(RefusalOf(dir.path()), HasSubstr("has 2 index files"));
  dir.Write("model.safetensors.index.json", IndexFile({{"a", "quant_model_weights-1.safetensors"}}));
  EXPECT_EQ(RefusalOf(dir.path()), "accepted");
}

TEST(Checkpoint, FilesWithoutIndex_AllRead) {
  TempDir dir;
  dir.Write("one.safetensors", OneTensor("a"));
  dir.Write("two.safetensors", OneTensor("b"));
  const auto checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->tensors().size(), 2u);
}

TEST(Checkpoint, FolderWithoutWeights_SaysSo) {
  TempDir dir;
  EXPECT_THAT(RefusalOf(dir.path()), HasSubstr("has no *.safetensors file"));
  EXPECT_THAT(RefusalOf(dir.path() + "/nothing"), HasSubstr("no model folder"));
  dir.Write("file", "x");
  EXPECT_THAT(RefusalOf(dir.File("file")), HasSubstr("is not a folder"));
}

TEST(Checkpoint, MissingShard_NamedAsIncompleteDownload) {
  TempDir dir;
  dir.Write("m-1.safetensors", OneTensor("a"));
  dir.Write("model.safetensors.index.json", IndexFile({{"a", "m-1.safetensors"}, {"b", "m-2.safetensors"}}));
  EXPECT_THAT(RefusalOf(dir.path()), testing::AllOf(HasSubstr("no file m-2.safetensors"), HasSubstr("incomplete download?")));
}

TEST(Checkpoint, TruncatedShard_NamedBeforeAnythingElse) {
  TempDir dir;
  const std::string file = SafetensorsFile({{"a", "U8", {4000}, std::string(4000, 'x')}});
  dir.Write("m-1.safetensors", OneTensor("b"));
  dir.Write("m-2.safetensors", file.substr(0, file.size() - 1000));
  dir.Write("model.safetensors.index.json", IndexFile({{"b", "m-1.safetensors"}, {"a", "m-2.safetensors"}}));
  EXPECT_THAT(RefusalOf(dir.path()),
              testing::AllOf(HasSubstr("m-2.safetensors"), HasSubstr("tensor a"), HasSubstr("incomplete download?")));
  dir.Write("m-2.safetensors", "");
  EXPECT_THAT(RefusalOf(dir.path()), testing::AllOf(HasSubstr("m-2.safetensors has 0 bytes"), HasSubstr("incomplete download?")));
}

TEST(Checkpoint, IndexThatDisagreesWithTheFiles_NamesTheTensor) {
  TempDir dir;
  dir.Write("m-1.safetensors", OneTensor("a"));
  dir.Write("m-2.safetensors", OneTensor("b"));
  dir.Write("model.safetensors.index.json", IndexFile({{"a", "m-1.safetensors"}, {"c", "m-2.safetensors"}}));
  EXPECT_THAT(RefusalOf(dir.path()), HasSubstr("names tensor c in m-2.safetensors, which lacks it"));
  dir.Write("model.safetensors.index.json", IndexFile({{"a", "m-2.safetensors"}, {"b", "m-1.safetensors"}}));
  EXPECT_THAT(RefusalOf(dir.path()), HasSubstr("names tensor a in m-2.safetensors, but it is in m-1.safetensors"));
  dir.Write("model.safetensors.index.json", R"({"weight_map":{}})");
  EXPECT_THAT(RefusalOf(dir.path()), HasSubstr("names no tensor"));
}

TEST(Checkpoint, TensorInTwoShards_Refused) {
  TempDir dir;
  dir.Write("m-1.safetensors", OneTensor("a"));
  dir.Write("m-2.safetensors", OneTensor("a"));
  EXPECT_THAT(RefusalOf(dir.path()), HasSubstr("tensor a is in two files, m-1.safetensors and m-2.safetensors"));
}

TEST(Checkpoint, TensorListedTwiceInOneHeader_Refused) {
  TempDir dir;
  dir.Write("model.safetensors", SafetensorsFile({{"a", "U8", {1}, "x"}, {"a", "U8", {1}, "y"}}));
  EXPECT_THAT(RefusalOf(dir.path()), HasSubstr("model.safetensors: tensor a is listed twice"));
}

TEST(Checkpoint, IndexThatLeavesTheFolder_Refused) {
  TempDir dir;
  dir.Write("secret.safetensors", OneTensor("a"));
  for (const std::string& name : {std::string("../secret.safetensors"), dir.File("secret.safetensors"),
                                  std::string("x/../../secret.safetensors"), std::string("a\\u0000.safetensors"), std::string()}) {
    dir.Write("model/model.safetensors.index.json", IndexFile({{"a", name}}));
    EXPECT_THAT(RefusalOf(dir.File("model")), HasSubstr("leads out of the model folder")) << name;
  }
}

TEST(Checkpoint, LinkOutOfTheFolder_Refused) {
  TempDir dir;
  dir.Write("secret.safetensors", OneTensor("a"));
  fs::create_directories(dir.File("model"));
  fs::create_symlink("../secret.safetensors", dir.File("model/model.safetensors"));
  EXPECT_THAT(RefusalOf(dir.File("model")), HasSubstr("model.safetensors is a link out of the model folder"));
  // A sibling whose name begins like the folder's is not inside it.
  dir.Write("model-2/x.safetensors", OneTensor("a"));
  fs::remove(dir.File("model/model.safetensors"));
  fs::create_symlink("../model-2/x.safetensors", dir.File("model/model.safetensors"));
  EXPECT_THAT(RefusalOf(dir.File("model")), HasSubstr("is a link out of the model folder"));
}

TEST(Checkpoint, LinkInsideTheFolder_Followed) {
  TempDir dir;
  dir.Write("model/data/x.bin", OneTensor("a"));
  fs::create_symlink("data/x.bin", dir.File("model/model.safetensors"));
  EXPECT_EQ(RefusalOf(dir.File("model")), "accepted");
  fs::create_directory_symlink(dir.File("model"), dir.File("alias"));
  EXPECT_EQ(RefusalOf(dir.File("alias")), "accepted");
}

TEST(Checkpoint, SnapshotOfTheHuggingFaceCache_ReadsItsBlobs) {
  TempDir dir;
  dir.Write("models--x--y/blobs/0123", OneTensor("a"));
  fs::create_directories(dir.File("models--x--y/snapshots/rev"));
  fs::create_symlink("../../blobs/0123", dir.File("models--x--y/snapshots/rev/model.safetensors"));
  EXPECT_EQ(RefusalOf(dir.File("models--x--y/snapshots/rev")), "accepted");
  // Another model's store is out of bounds, and a store that is a link proves nothing.
  dir.Write("models--z/blobs/4567", OneTensor("a"));
  fs::create_directories(dir.File("models--x--y/snapshots/rev2"));
  fs::create_symlink("../../../models--z/blobs/4567", dir.File("models--x--y/snapshots/rev2/model.safetensors"));
  EXPECT_THAT(RefusalOf(dir.File("models--x--y/snapshots/rev2")), HasSubstr("is a link out of the model folder"));
  fs::create_directories(dir.File("evil/snapshots/rev"));
  fs::create_directory_symlink("../models--z/blobs", dir.File("evil/blobs"));
  fs::create_symlink("../../blobs/4567", dir.File("evil/snapshots/rev/model.safetensors"));
  EXPECT_THAT(RefusalOf(dir.File("evil/snapshots/rev")), HasSubstr("is a link out of the model folder"));
}

TEST(Checkpoint, PipesFoldersAndLoops_RefusedWithoutHanging) {
  TempDir dir;
  ASSERT_EQ(mkfifo(dir.File("model.safetensors").c_str(), 0600), 0);
  EXPECT_THAT(RefusalOf(dir.path()), HasSubstr("is not a regular file"));
  fs::remove(dir.File("model.safetensors"));
  fs::create_directories(dir.File("model.safetensors"));
  EXPECT_THAT(RefusalOf(dir.path()), HasSubstr("is not a regular file"));
  fs::remove(dir.File("model.safetensors"));
  fs::create_symlink("model.safetensors", dir.File("model.safetensors"));
  EXPECT_THAT(RefusalOf(dir.path()), HasSubstr("cannot open model.safetensors"));
}

size_t ResidentBytes() {
  size_t pages = 0;
  size_t resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * 4096;
}

// Data stays on disk: 8 GB of declared tensor (a sparse file) open in milliseconds and a few MB.
TEST(Checkpoint, LargeFile_OpenedWithoutTouchingItsData) {
  TempDir dir;
  const uint64_t data_bytes = uint64_t{8} << 30;
  const std::string header =
      R"({"a":{"dtype":"U8","shape":[)" + std::to_string(data_bytes) + R"(],"data_offsets":[0,)" + std::to_string(data_bytes) + "]}}";
  dir.Write("model.safetensors", SafetensorsFile(header, ""));
  fs::resize_file(dir.File("model.safetensors"), 8 + header.size() + data_bytes);
  const size_t before = ResidentBytes();
  const auto checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->total_bytes(), data_bytes);
  EXPECT_LT(ResidentBytes(), before + (size_t{64} << 20));
}

}  // namespace
}  // namespace avocet::weights
