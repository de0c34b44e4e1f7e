// Grammars against texts: what each front end lets through and what it does not, and what it refuses to compile.
#include <chrono>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "grammar/grammar_cache.h"
#include "grammar/state_table.h"

namespace avocet::grammar {
namespace {

bool Matches(StateTable& table, std::string_view text) {
  StateId state = table.start();
  for (const char byte : text) state = table.Next(state, static_cast<uint8_t>(byte));
  return state != StateId::kDead && table.IsAccepting(state);
}

struct Case {
  std::string source;
  std::vector<std::string> good;
  std::vector<std::string> bad;
};

void Check(const Source& source, const Case& c) {
  Result<Automaton> automaton = Compile(source);
  ASSERT_TRUE(automaton.has_value()) << c.source << ": " << automaton.error().message;
  StateTable table(*std::move(automaton));
  for (const std::string& text : c.good) EXPECT_TRUE(Matches(table, text)) << c.source << " refuses " << text;
  for (const std::string& text : c.bad) EXPECT_FALSE(Matches(table, text)) << c.source << " lets through " << text;
}

TEST(Grammar, Regex_MatchesAsRegexDo) {
  const std::vector<Case> cases = {
      {"abc", {"abc"}, {"", "ab", "abcd"}},
      {"a|bc*", {"a", "b", "bccc"}, {"ab", "c"}},
      {"^[a-c]+$", {"a", "cab"}, {"", "d"}},
      {"[^a-c]", {"d", "é", "中", "🌶"}, {"a", "dd", ""}},
      {"(ab){2,3}", {"abab", "ababab"}, {"ab", "abababab"}},
      {"(?:a|(?<x>b))?c", {"c", "ac", "bc"}, {"abc"}},
      {R"(\d{3}-\w+\s?)", {"123-a_9", "000-b "}, {"12-a", "123-"}},
      {R"(a\.b\\\n)", {"a.b\\\n"}, {"axb\\\n"}},
      {R"([\]\-a])", {"]", "-", "a"}, {"b"}},
      {R"(é\u4e2d[\x41-\x43])", {"é中B"}, {"é中D"}},
      {"[à-ü]{1,2}", {"é", "éö"}, {"e", "éöü"}},
      {"(a*)*b", {"b", "aab"}, {"a"}},
      {".{0,5}", {"", "中中中中中"}, {"a\nb", "123456"}},
      {"a*?b+?", {"b", "aabb"}, {"a"}},
  };
  for (const Case& c : cases) Check({.kind = SourceKind::kRegex, .text = c.source}, c);
}

TEST(Grammar, Ebnf_FollowsRules) {
  const std::vector<Case> cases = {
      {"root ::= \"a\" rest # comment\nrest ::= [0-9]+ | \"(\" root \")\"", {"a1", "a(a(a22))"}, {"a", "a(a1", "a()"}},
      {"root ::= item (\",\" item)*\nitem ::= \"x\" | \"y\"{2}", {"x", "x,yy"}, {"y", "x,"}},
      {"root ::= ('it\\'s' | \"q\\\"\" | \"\\x41\\n\")+", {"it's", "q\"", "A\n"}, {"its"}},
      {"root ::= \"a\" root | \"b\"", {"b", "aaab"}, {"aaa"}},
      {"root ::= [^\\n\"]{2,}", {"ab", "é中d"}, {"a", "a\nb"}},
  };
  for (const Case& c : cases) Check({.kind = SourceKind::kEbnf, .text = c.source}, c);
}

TEST(Grammar, Schema_LetsThroughWhatIsValid) {
  const std::vector<Case> cases = {
      {R"({"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"}},"required":["a"]})",
       {R"({"a":"x"})", R"({"a": "x", "b": -12})", "{\n  \"a\": \"\\u00e9\\n\",\n  \"b\": 0\n}"},
       {R"({})", R"({"b":1})", R"({"a":"x","b":1.5})", R"({"a":"x",})", R"({"a":"x","c":1})", R"({"b":1,"a":"x"})", "{\"a\":\"\n\"}",
        R"({"a":"\ud800"})", R"({"a":"x"}  )"}},
      {R"({"properties":{"a":{"type":"boolean"},"b":{"type":"null"},"c":{"enum":["x",3]}}})",
       {"{}", R"({"a":true})", R"({"b":null})", R"({"c":"x"})", R"({"a":false,"c":3})"},
       {R"({,"b":null})", R"({"c":"y"})", R"({"a":true "b":null})"}},
      {R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})", {"[1]", "[1,2, 3]"}, {"[]", "[1,2,3,4]", "[1,]"}},
      {R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":{"const":7}})",
       {R"([1,"a"])", R"([1,"a",7,7])"},
       {"[1]", R"([1,"a",8])"}},
      {R"({"type":"array"})", {"[]", R"([1,"a",{"b":[null]}])"}, {"[", "{}"}},
      {R"({"anyOf":[{"type":"null"},{"type":"string","maxLength":3}]})", {"null", R"("abc")", R"("中中中")"}, {R"("abcd")", "1"}},
      {R"({"type":["integer","null"],"minimum":3,"maximum":120})", {"3", "120", "99", "null"}, {"2", "121", "-3", "007"}},
      {R"({"type":"integer","exclusiveMinimum":-20,"maximum":-3})", {"-3", "-19", "-10"}, {"-20", "-2", "0", "-100"}},
      {R"({"type":"number","minimum":0.5,"exclusiveMaximum":2})", {"1", "1.5", "1.99"}, {"0", "2", "2.5", "-1"}},
      {R"({"type":"integer","minimum":-3})", {"-3", "999999999999999"}, {"-4", "1234567890123456"}},
      {R"({"type":"number","maximum":1e300})", {"-5.5", "3"}, {"x"}},
      {R"({"type":"number"})", {"0", "-1.5", "3e8", "12.50"}, {"01", ".5", "1.", "+1"}},
      {R"({"type":"string","pattern":"^[a-z]+\"$"})", {R"("ab\"")"}, {R"("ab")", R"("AB\"")"}},
      {R"({"type":"string","pattern":"b"})", {R"("abc")", R"("b")"}, {R"("ac")"}},
      {R"({"type":"string","format":"date"})", {R"("2024-02-29")"}, {R"("2024-13-01")"}},
      {R"({"$ref":"#/$defs/Node","$defs":{"Node":{"type":"object","properties":{"next":{"anyOf":[{"$ref":"#/$defs/Node"},{"type":"null"}]}},"required":["next"]}}})",
       {R"({"next":null})", R"({"next":{"next":{"next":null}}})"},
       {R"({"next":{}})"}},
      {R"({"allOf":[{"properties":{"a":{"type":"integer"}}},{"properties":{"b":{"type":"integer"}},"required":["b"]}]})",
       {R"({"a":1,"b":2})", R"({"b":2})"},
       {R"({"a":1})"}},
      {R"({"type":"object","properties":{"ab":{"type":"integer"}},"additionalProperties":{"type":"string"}})",
       {R"({"ab":1,"x":"y"})", R"({"a":"1"})", R"({"abc":"1"})", "{}"},
       {R"({"ab":"1"})", R"({"x":1})", R"({"x":"y","ab":"z"})"}},
      {R"({"type":"object"})", {"{}", R"({"a":{"b":[1,2,{}]}})"}, {"[]", R"({"a"})"}},
      {"{}", {"1", "[]", R"("x")"}, {"x"}},
      {R"({"const":{"a":1}})", {R"({"a":1})"}, {R"({"a":2})"}},
  };
  for (const Case& c : cases) Check({.kind = SourceKind::kJsonSchema, .json = Json::parse(c.source)}, c);
}

TEST(Grammar, JsonWhiteSpace_IsBounded) {
  Check({.kind = SourceKind::kJsonObject},
        {"object", {"{ \"a\": [1, 2] }", "{\n    \"a\": 1\n}"}, {"{  \"a\": 1}", "{\n\n\"a\":1}", "{" + std::string(33, ' ') + "}"}});
  Check({.kind = SourceKind::kJsonObject, .spacing = Spacing::kNone}, {"object", {R"({"a":1})"}, {R"({"a": 1})"}});
}

TEST(Grammar, ToolCalls_FollowTheSchemas) {
  const Json parameters = Json::parse(R"({"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"},
    "how":{"enum":["car","bus"]},"more":{"$ref":"#/$defs/More"}},"required":["city"],"$defs":{"More":{"type":"array","items":{"type":"boolean"}}}})");
  const std::string open = "<tool_call>\n<function=f>\n";
  const std::string close = "</function>\n</tool_call>";
  const std::string city = "<parameter=city>\nNew York\n</parameter>\n";
  const std::string days = "<parameter=days>\n3\n</parameter>\n";
  Source source{.kind = SourceKind::kToolCalls, .tools = {{"f", parameters}, {"g", nullptr}}};
  Check(source, {"calls",
                 {open + city + close, "\n\n" + open + city + days + close, open + city + "<parameter=how>\nbus\n</parameter>\n" + close,
                  open + city + "<parameter=more>\n[true, false]\n</parameter>\n" + close,
                  open + "<parameter=city>\na < b\n</parameter\n\n</parameter>\n" + close,
                  open + city + close + "\n<tool_call>\n<function=g>\n</function>\n</tool_call>"},
                 {open + close, open + days + city + close, open + city + "<parameter=days>\nmany\n</parameter>\n" + close,
                  open + city + "<parameter=how>\nwalk\n</parameter>\n" + close, "<tool_call>\n<function=h>\n" + close, "text", ""}});
  source.markup = CallMarkup::kJsonTags;
  source.count = CallCount::kOne;
  const std::string json = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"city\": \"Rome\", \"days\": 3}}\n</tool_call>";
  Check(source, {"calls", {json, "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>"}, {json + "\n" + json}});
}

TEST(Grammar, StructuralTags_HoldWhereTriggered) {
  const Json tag = Json::parse(R"({"structures":[{"begin":"<f=a>","schema":{"type":"integer"},"end":"</f>"},
    {"begin":"<f=b>","schema":{"const":true},"end":"</f>"}],"triggers":["<f="]})");
  Check({.kind = SourceKind::kStructuralTag, .json = tag},
        {"tags", {"", "plain <f text", "x <f=a>12</f> y <f=b>true</f>", "<<f=a>1</f>"}, {"<f=a>true</f>", "<f=c>", "x <f=a>12"}});
  const Json format = Json::parse(R"({"type":"structural_tag","format":{"type":"sequence","elements":[
    {"type":"tag","begin":"<t>","content":{"type":"any_text"},"end":"</t>"},{"type":"or","elements":[{"type":"const_string","value":"x"},
    {"type":"regex","pattern":"[0-9]+"}]}]}})");
  Check({.kind = SourceKind::kStructuralTag, .json = format},
        {"format", {"<t>any < thing</t>x", "<t></t>42"}, {"x", "<t>a</t>", "<t>a</t>xy"}});
}

struct Refused {
  SourceKind kind;
  std::string source;
  std::string fragment;
};

TEST(Grammar, WhatCannotBe_IsRefusedWithItsReason) {
  using enum SourceKind;
  std::string deep_groups(60'000, '(');
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 5000; ++i) chain += fmt::format("r{} ::= r{} \"x\"\n", i, i + 1);
  chain += "r5000 ::= r0";
  const std::vector<Refused> cases = {
      {kRegex, "[", "not closed"},
      {kRegex, "a**b(", "not closed"},
      {kRegex, "(?=a)", "look-around"},
      {kRegex, R"((a)\1)", "\\1"},
      {kRegex, R"(\bword)", "\\b"},
      {kRegex, "*a", "repeat"},
      {kRegex, "a{5,2}", "repeats"},
      {kRegex, "a{999999}", "repeats"},
      {kRegex, "((a{20000}){20000}b){9}(a{20000}){20000}c(x{20000}y{20000}z{20000}q{20000}r{20000})", "too large"},
      {kRegex, deep_groups, "groups"},
      {kEbnf, "root ::= root \"a\" | \"b\"", "left-recursive"},
      {kEbnf, "root ::= a\na ::= b? a \"x\" | \"y\"\nb ::= \"z\"", "left-recursive"},
      {kEbnf, "root ::= \"a\" root", "no finite text"},
      {kEbnf, "root ::= other", "not defined"},
      {kEbnf, "a ::= \"x\"", "no rule named root"},
      {kEbnf, "start: \"x\"", "expected a rule"},
      {kEbnf, "root ::= " + deep_groups, "groups"},
      {kEbnf, chain, ""},
      {kJsonSchema, R"({"type":"nosuch"})", "nosuch"},
      {kJsonSchema, R"({"type":"object","patternProperties":{"a":{}}})", "patternProperties"},
      {kJsonSchema, R"({"$ref":"http://127.0.0.1:9/x"})", "not followed"},
      {kJsonSchema, R"({"$ref":"#/$defs/A","$defs":{"A":{"$ref":"#/$defs/A"}}})", ""},
      {kJsonSchema, R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})", "no finite text"},
      {kJsonSchema, R"({"type":"string","pattern":"["})", "pattern"},
      {kJsonSchema, R"({"type":"string","minLength":5,"maxLength":2})", "minLength"},
      {kJsonSchema, R"({"type":"integer","minimum":5,"maximum":2})", "no finite text"},
      {kJsonSchema, R"({"properties":[]})", "properties"},
      {kJsonSchema, R"({"enum":[]})", "enum"},
  };
  for (const Refused& c : cases) {
    Source source{.kind = c.kind};
    if (c.kind == kJsonSchema) {
      source.json = Json::parse(c.source);
    } else {
      source.text = c.source;
    }
    const auto begin = std::chrono::steady_clock::now();
    const Result<Automaton> automaton = Compile(source);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    ASSERT_FALSE(automaton.has_value()) << c.source.substr(0, 100);
    EXPECT_NE(automaton.error().message.find(c.fragment), std::string::npos)
        << c.source.substr(0, 100) << ": " << automaton.error().message;
    EXPECT_LT(seconds, 5.0) << c.source.substr(0, 100);  // sanitizers and busy machines included
  }
}

// Ambiguity multiplies the ways of reading a text; the bound on them keeps every step short.
TEST(Grammar, Ambiguity_IsBounded) {
  Result<Automaton> automaton = Compile({.kind = SourceKind::kRegex, .text = "((a?){30}(a|aa|aaa)*){30}"});
  ASSERT_TRUE(automaton.has_value()) << automaton.error().message;
  StateTable table(*std::move(automaton));
  StateId state = table.start();
  for (int i = 0; i < 200 && state != StateId::kDead; ++i) state = table.Next(state, 'a');
  EXPECT_NE(state, StateId::kDead);
  EXPECT_LT(table.num_states(), 2000u);
}

// 2^12 states of hundreds of ways each would be gigabytes and minutes: the bounds come first, and what is left is in the language.
TEST(Grammar, ExplodingStates_MeetTheBounds) {
  Result<Automaton> automaton = Compile({.kind = SourceKind::kRegex, .text = "(.?){700}[aeiou].{12}"});
  ASSERT_TRUE(automaton.has_value()) << automaton.error().message;
  StateTable table(*std::move(automaton));
  uint32_t random = 7;
  for (int run = 0; run < 400 && !table.IsWorn(); ++run) {
    StateId state = table.start();
    for (int i = 0; i < 40 && state != StateId::kDead; ++i) {
      random = random * 1664525u + 1013904223u;
      state = table.Next(state, (random >> 30) == 0 ? 'a' : 'b');
    }
  }
  EXPECT_LT(table.num_states(), 5000u);
  EXPECT_NE(table.Next(table.start(), 'a'), StateId::kDead);
}

}  // namespace
}  // namespace avocet::grammar
