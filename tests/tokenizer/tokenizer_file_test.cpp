// Hostile and unusual tokenizer files: one clear line each, never a crash.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/limits.h"
#include "tokenizer/tokenizer_testing.h"

namespace avocet::tokenizer {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Refusal(const std::string& tokenizer_json, const std::string& config_json = "") {
  const auto parsed = Tokenizer::Parse(tokenizer_json, config_json);
  if (parsed) return "accepted";
  EXPECT_EQ(parsed.error().message.find('\n'), std::string::npos);
  EXPECT_LT(parsed.error().message.size(), 500u);
  return parsed.error().message;
}

std::string RefusalWith(const nlohmann::json& patch) {
  nlohmann::json json = MakeTokenizerJson({{"a", "b"}});
  json.merge_patch(patch);
  return Refusal(json.dump());
}

std::string RefusalWithModel(const char* key, const nlohmann::json& value) {
  nlohmann::json json = MakeTokenizerJson({{"a", "b"}});
  json["model"][key] = value;
  return Refusal(json.dump());
}

TEST(TokenizerFile, BrokenJson_IsRefusedWithItsPlace) {
  EXPECT_EQ(Refusal(""), "tokenizer.json: not valid JSON near byte 1");
  EXPECT_THAT(Refusal("{\"model\": {\"vocab\": {\"a\": 1"), StartsWith("tokenizer.json: not valid JSON near byte"));
  EXPECT_THAT(Refusal("[1, 2]"), HasSubstr("the file is array, not an object"));
  EXPECT_THAT(Refusal("{\"a\": \"\xFF\"}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(Refusal("{\"model\": {\"vocab\": {\"a\": 1e400}}}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(Refusal(std::string(1000, '[')), HasSubstr("nested deeper than 128"));
  EXPECT_THAT(Refusal("{\"a\": [" + std::string(5'000'000, ' ') + "0" +
                      [] {
                        std::string zeros;
                        for (int32_t i = 0; i < limits::kTokenizerValuesMax; ++i) zeros += ",0";
                        return zeros;
                      }() +
                      "]}"),
              HasSubstr("values beside vocabulary and merges"));
}

TEST(TokenizerFile, BadVocabulary_IsRefused) {
  EXPECT_THAT(RefusalWithModel("vocab", nullptr), HasSubstr("model.vocab is missing or empty"));
  EXPECT_THAT(RefusalWithModel("vocab", nlohmann::json::object()), HasSubstr("model.vocab is missing or empty"));
  EXPECT_THAT(RefusalWithModel("vocab", 5), HasSubstr("model.vocab is missing or empty"));
  for (const auto& [id, said] : std::vector<std::pair<nlohmann::json, std::string>>{{-1, "no whole number"},
                                                                                    {1.5, "no whole number"},
                                                                                    {"7", "a string as its id"},
                                                                                    {nullptr, "no whole number"},
                                                                                    {nlohmann::json::array({1}), "an array as its id"},
                                                                                    {nlohmann::json::object(), "an object inside"},
                                                                                    {1 << 22, "ids below 4194304"},
                                                                                    {UINT64_MAX, "ids below 4194304"},
                                                                                    {65, "appears twice"}}) {
    nlohmann::json json = MakeTokenizerJson({});
    json["model"]["vocab"]["zz"] = id;
    EXPECT_THAT(Refusal(json.dump()), HasSubstr(said)) << id;
  }
  EXPECT_THAT(Refusal(R"({"model": {"vocab": {"a": 1, "a": 2}}})"), Not(HasSubstr("accepted")));
  nlohmann::json json = MakeTokenizerJson({});
  json["model"]["vocab"].erase("q");
  EXPECT_THAT(Refusal(json.dump()), HasSubstr("no token for byte 0x71"));
  json = MakeTokenizerJson({});
  json["model"]["vocab"][std::string(limits::kTokenBytesMax + 1, 'a')] = 300;
  EXPECT_THAT(Refusal(json.dump()), HasSubstr("has 4097 bytes"));
  json = MakeTokenizerJson({});
  json["model"]["vocab"][""] = 300;
  EXPECT_THAT(Refusal(json.dump()), HasSubstr("has 0 bytes"));
}

TEST(TokenizerFile, TokenWrittenTwice_IsRefused) {
  std::string text = MakeTokenizerJson({}).dump();
  const std::string entry = "\"A\":65";
  text.replace(text.find(entry), entry.size(), "\"A\":65,\"A\":400");
  EXPECT_THAT(Refusal(text), HasSubstr("token A appears twice, as ids 65 and 400"));
}

TEST(TokenizerFile, BadMerges_AreRefused) {
  EXPECT_THAT(RefusalWithModel("merges", nlohmann::json::array({"a"})), HasSubstr("not two tokens with a space between: a"));
  EXPECT_THAT(RefusalWithModel("merges", nlohmann::json::array({"a b c"})), HasSubstr("not two tokens with a space between: a b c"));
  EXPECT_THAT(RefusalWithModel("merges", nlohmann::json::array({5})), HasSubstr("a merge that is no string"));
  EXPECT_THAT(RefusalWithModel("merges", nlohmann::json::parse(R"([["a"]])")), HasSubstr("has 1 parts"));
  EXPECT_THAT(RefusalWithModel("merges", nlohmann::json::parse("[[]]")), HasSubstr("has 0 parts"));
  EXPECT_THAT(RefusalWithModel("merges", nlohmann::json::parse(R"([["a", "b", "c"]])")), HasSubstr("has 3 parts"));
  EXPECT_THAT(RefusalWithModel("merges", nlohmann::json::parse(R"([[["a"], "b"]])")), HasSubstr("an array inside a merge"));
  EXPECT_THAT(RefusalWithModel("merges", nlohmann::json::parse(R"([{"a": "b"}])")), HasSubstr("an object inside"));
  EXPECT_THAT(RefusalWithModel("merges", nlohmann::json::array({"a zz"})), HasSubstr("merge 0 names zz, which is not in the vocabulary"));
  EXPECT_THAT(RefusalWithModel("merges", nlohmann::json::array({"a \u4e2d"})), HasSubstr("which is not in the vocabulary"));
  EXPECT_THAT(RefusalWithModel("merges", nlohmann::json::array({"b a"})), HasSubstr("merge 0 of b and a gives no token"));
  EXPECT_THAT(RefusalWithModel("merges", nlohmann::json::array({" b"})), HasSubstr("merge 0 names , which"));
  EXPECT_THAT(RefusalWithModel("merges", nlohmann::json::array({"a\n \x01"})), HasSubstr("merge 0 names a?, which"));  // still one line
}

TEST(TokenizerFile, WhatIsNotOffered_IsRefusedByName) {
  EXPECT_THAT(RefusalWithModel("type", "Unigram"), HasSubstr("model type Unigram is not offered, only BPE"));
  EXPECT_THAT(RefusalWithModel("dropout", 0.1), HasSubstr("dropout is not offered"));
  EXPECT_THAT(RefusalWithModel("continuing_subword_prefix", "##"), HasSubstr("continuing_subword_prefix ## "));
  EXPECT_THAT(RefusalWithModel("end_of_word_suffix", "</w>"), HasSubstr("end_of_word_suffix </w>"));
  EXPECT_THAT(RefusalWithModel("ignore_merges", "yes"), HasSubstr("ignore_merges is string, not true or false"));
  EXPECT_THAT(RefusalWith({{"normalizer", {{"type", "NFKC"}}}}), HasSubstr("normalizer NFKC is not offered, only NFC"));
  EXPECT_THAT(RefusalWith({{"normalizer", {{"type", "Sequence"}}}}), HasSubstr("Sequence without normalizers"));
  EXPECT_THAT(RefusalWith({{"normalizer", {{"kind", "NFC"}, {"type", nullptr}}}}), HasSubstr("normalizer has no type"));
  EXPECT_THAT(RefusalWith({{"decoder", nullptr}}), HasSubstr("0 decoders are not offered"));
  EXPECT_THAT(RefusalWith({{"decoder", {{"type", "Metaspace"}}}}), HasSubstr("decoder Metaspace is not offered, only ByteLevel"));
  EXPECT_THAT(RefusalWith({{"post_processor", {{"type", "TemplateProcessing"}}}}), HasSubstr("post_processor TemplateProcessing"));
  EXPECT_THAT(RefusalWith({{"pre_tokenizer", nullptr}}), HasSubstr("pre_tokenizer [] is not offered"));
  EXPECT_THAT(RefusalWith({{"pre_tokenizer", {{"type", "ByteLevel"}, {"pretokenizers", nullptr}}}}), HasSubstr("[ByteLevel]"));
  nlohmann::json json = MakeTokenizerJson({});
  nlohmann::json& split = json["pre_tokenizer"]["pretokenizers"][0];
  nlohmann::json& byte_level = json["pre_tokenizer"]["pretokenizers"][1];
  split["behavior"] = "Removed";
  EXPECT_THAT(Refusal(json.dump()), HasSubstr("Split with behavior Removed"));
  split["behavior"] = "Isolated";
  split["pattern"] = {{"String", " "}};
  EXPECT_THAT(Refusal(json.dump()), HasSubstr("a pattern with a Regex"));
  split["pattern"] = {{"Regex", "(unclosed"}};
  EXPECT_THAT(Refusal(json.dump()), HasSubstr("does not compile"));
  split["pattern"] = {{"Regex", "x"}};
  byte_level["add_prefix_space"] = true;
  EXPECT_THAT(Refusal(json.dump()), HasSubstr("add_prefix_space is not offered"));
  byte_level["add_prefix_space"] = false;
  byte_level["use_regex"] = true;
  EXPECT_THAT(Refusal(json.dump()), HasSubstr("use_regex beside a Split"));
}

TEST(TokenizerFile, SequencesOfOne_AreWhatTheyHold) {
  EXPECT_EQ(RefusalWith({{"normalizer", {{"type", "Sequence"}, {"normalizers", nlohmann::json::array({{{"type", "NFC"}}})}}}}), "accepted");
  EXPECT_EQ(RefusalWith({{"normalizer", nullptr}}), "accepted");
  EXPECT_EQ(RefusalWith({{"decoder", {{"type", "Sequence"}, {"decoders", nlohmann::json::array({{{"type", "ByteLevel"}}})}}}}), "accepted");
  EXPECT_EQ(RefusalWith({{"post_processor", {{"type", "ByteLevel"}, {"trim_offsets", false}}}}), "accepted");
}

TEST(TokenizerFile, NoNormalizer_LeavesTextAlone) {
  nlohmann::json json = MakeTokenizerJson({});
  EXPECT_EQ(MustParse(json)->Encode("e\u0301").size(), 2u);
  json["normalizer"] = nullptr;
  EXPECT_EQ(MustParse(json)->Encode("e\u0301").size(), 3u);
}

TEST(TokenizerFile, BadAddedTokens_AreRefused) {
  using Tokens = std::vector<nlohmann::json>;
  const auto refusal = [](const Tokens& tokens) { return RefusalWith({{"added_tokens", tokens}}); };
  EXPECT_THAT(RefusalWith({{"added_tokens", 5}}), HasSubstr("added_tokens is number, not an array"));
  EXPECT_THAT(refusal({5}), HasSubstr("no whole number as its id"));
  EXPECT_THAT(refusal({nlohmann::json{{"id", -1}, {"content", "x"}}}), HasSubstr("added token has id -1"));
  EXPECT_THAT(refusal({nlohmann::json{{"id", 1 << 22}, {"content", "x"}}}), HasSubstr("ids from 0 to below 4194304"));
  EXPECT_THAT(refusal({nlohmann::json{{"id", UINT64_MAX}, {"content", "x"}}}), HasSubstr("added token has id"));
  EXPECT_THAT(refusal({nlohmann::json{{"id", 300}}}), HasSubstr("has 0 bytes"));
  EXPECT_THAT(refusal({nlohmann::json{{"id", 300}, {"content", std::string(2000, 'x')}}}), HasSubstr("has 2000 bytes"));
  EXPECT_THAT(refusal({nlohmann::json{{"id", 300}, {"content", "x"}, {"special", 1}}}), HasSubstr("special is number"));
  EXPECT_THAT(refusal({MakeAddedToken(300, "x1"), MakeAddedToken(301, "x1")}), HasSubstr("added token x1 has ids 300 and 301"));
  EXPECT_THAT(refusal({MakeAddedToken(300, "x1"), MakeAddedToken(300, "x2")}), HasSubstr("x1 and x2 have the same id 300"));
  EXPECT_THAT(refusal({MakeAddedToken(65, "<x>")}), HasSubstr("added token <x> has id 65, which is A elsewhere"));
  EXPECT_THAT(refusal(Tokens(65537, MakeAddedToken(300, "x"))), HasSubstr("65537 added tokens, at most 65536"));
  Tokens twins{MakeAddedToken(300, "\u00e9"), MakeAddedToken(301, "e\u0301")};
  for (nlohmann::json& twin : twins) twin["normalized"] = true;
  EXPECT_THAT(refusal(twins), HasSubstr("300 and 301 are the same text once normalized"));
}

TEST(TokenizerConfigFile, BadContent_IsRefused) {
  const std::string good = MakeTokenizerJson({}).dump();
  EXPECT_THAT(Refusal(good, "{"), StartsWith("tokenizer_config.json: not valid JSON"));
  EXPECT_THAT(Refusal(good, "[]"), HasSubstr("not an object"));
  EXPECT_THAT(Refusal(good, R"({"added_tokens_decoder": []})"), HasSubstr("added_tokens_decoder is array"));
  EXPECT_THAT(Refusal(good, R"({"added_tokens_decoder": {"x": {"content": "<x>"}}})"), HasSubstr("the key x, not an id"));
  EXPECT_THAT(Refusal(good, R"({"added_tokens_decoder": {"1": 5}})"), HasSubstr("added token 1 is number"));
  EXPECT_THAT(Refusal(good, R"({"added_tokens_decoder": {"99999999999999999999": {"content": "<x>"}}})"), HasSubstr("not an id"));
  EXPECT_THAT(Refusal(good, "{\"eos_token\": \"" + std::string(2000, 'x') + "\"}"), HasSubstr("eos_token has 2000 bytes"));
  EXPECT_EQ(Refusal(good, R"({"eos_token": "<nowhere>"})"), "accepted");  // a warning: the config's eos ids count, not its name
  EXPECT_THAT(Refusal(good, R"({"eos_token": 5})"), HasSubstr("eos_token is number, not a token"));
  EXPECT_THAT(Refusal(good, R"({"chat_template": 5})"), HasSubstr("chat_template is number, not a string"));
}

TEST(TokenizerConfigFile, TokensAndTemplate_AreRead) {
  nlohmann::json json = MakeTokenizerJson({{"<", "e"}, {"<e", ">"}});
  json["added_tokens"] = {MakeAddedToken(300, "<end>"), MakeAddedToken(301, "<think>")};
  const auto tokenizer = MustParse(json, R"({"eos_token": {"content": "<end>"}, "pad_token": "<pad>", "bos_token": null,
      "additional_special_tokens": ["<e>"],
      "added_tokens_decoder": {"301": {"content": "<think>", "special": false}, "310": {"content": "<pad>", "special": true}},
      "chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]})");
  EXPECT_EQ(tokenizer->eos_token(), "<end>");
  EXPECT_EQ(tokenizer->pad_token(), "<pad>");
  EXPECT_EQ(tokenizer->bos_token(), "");
  EXPECT_EQ(tokenizer->config_chat_template(), "D");
  EXPECT_EQ(tokenizer->vocab_size(), 311);
  EXPECT_EQ(tokenizer->FindAdded("<pad>"), 310);
  EXPECT_EQ(tokenizer->FindAdded("<e>"), 257);  // an entry of the vocabulary that the config names special
  EXPECT_TRUE(tokenizer->IsSpecial(257));
  EXPECT_FALSE(tokenizer->IsSpecial(301));  // the config's flag wins
  EXPECT_FALSE(tokenizer->HasToken(305));
  EXPECT_TRUE(tokenizer->IsAdded(310));
  EXPECT_EQ(MustParse(json, R"({"chat_template": "one"})")->config_chat_template(), "one");
  EXPECT_EQ(MustParse(json, R"({"chat_template": []})")->config_chat_template(), std::nullopt);
}

TEST(TokenizerLoad, MissingFolderOrFile_SaysWhich) {
  const auto missing = Tokenizer::Load("/nonexistent");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Errc::kNotFound);
  EXPECT_EQ(missing.error().message, "/nonexistent/tokenizer.json is not a file");
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "avocet_tokenizer_load";
  std::filesystem::create_directories(folder / "tokenizer.json");
  EXPECT_EQ(Tokenizer::Load(folder.string()).error().message, (folder / "tokenizer.json").string() + " is not a file");
  std::filesystem::remove_all(folder);
}

// Any cut of a good file is either refused or still a whole tokenizer.
TEST(TokenizerFile, EveryTruncation_IsRefused) {
  nlohmann::json json = MakeTokenizerJson({{"a", "b"}});
  json["added_tokens"] = nlohmann::json::array({MakeAddedToken(300, "<x>")});
  const std::string whole = json.dump();
  ASSERT_EQ(Refusal(whole), "accepted");
  for (size_t num_bytes = 0; num_bytes < whole.size(); num_bytes += 7) {
    ASSERT_NE(Refusal(whole.substr(0, num_bytes)), "accepted") << num_bytes;
  }
}

}  // namespace
}  // namespace avocet::tokenizer
