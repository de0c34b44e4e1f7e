// A template is code that a stranger wrote: whatever it does, rendering ends with a text or an error, within the limits and in bounded
// time.
#include <string>

#include <gtest/gtest.h>

#include "tokenizer/chat_template.h"

namespace avocet::tokenizer {
namespace {

std::string Times(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

// The error of parsing or rendering; empty if there is a text.
std::string ErrorOf(const std::string& source) {
  const auto parsed = ChatTemplate::Parse(source, "hostile");
  if (!parsed) return parsed.error().message;
  const auto text = parsed->Render(Json::object());
  return text ? std::string() : text.error().message;
}

void ExpectRefused(const std::string& source, std::string_view reason) {
  const std::string error = ErrorOf(source);
  EXPECT_NE(error.find(reason), std::string::npos) << "error: " << error.substr(0, 200) << "\ntemplate: " << source.substr(0, 200);
}

TEST(HostileTemplate, NestedSource_IsRefused) {
  constexpr int kMany = 50'000;
  for (const std::string& source : {
           "{{ " + Times("(", kMany) + "1" + Times(")", kMany) + " }}",
           "{{ " + Times("[", kMany) + "1" + Times("]", kMany) + " }}",
           "{{ " + Times("not ", kMany) + "1 }}",
           "{{ " + Times("-", kMany) + "1 }}",
           "{{ " + Times("1 if 0 else ", kMany) + "2 }}",
           Times("{% if 1 %}", kMany) + Times("{% endif %}", kMany),
           "{% for " + Times("(", kMany) + "a" + Times(")", kMany) + " in [] %}{% endfor %}",
       }) {
    EXPECT_NE(ErrorOf(source), "") << source.substr(0, 40);
  }
}

// Operators in a row need no recursion to parse, but make a tree as high as they are many.
TEST(HostileTemplate, LongOperatorChains_EndWithoutExhaustingTheStack) {
  constexpr int kMany = 50'000;
  for (const std::string& source : {
           "{{ 1" + Times(" + 1", kMany) + " }}",
           "{{ 1" + Times(" ~ 1", kMany) + " }}",
           "{{ 1" + Times(" | string", kMany) + " }}",
           "{{ a" + Times(".b", kMany) + " }}",
           "{{ 1" + Times(" and 1", kMany) + " }}",
           "{% if 0 %}" + Times("{% elif 0 %}", kMany) + "{% endif %}",
       }) {
    ErrorOf(source);
  }
}

TEST(HostileTemplate, EndlessRecursion_IsRefused) {
  ExpectRefused("{% macro f(n) %}{% if true %}{{ f(n + 1) }}{% endif %}{% endmacro %}{{ f(0) }}", "evaluations in one another");
  ExpectRefused("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "evaluations in one another");
}

TEST(HostileTemplate, NestedValues_AreRefused) {
  const std::string loop = "{% for i in range(100) %}{% for j in range(8000) %}";
  const std::string end = "{% endfor %}{% endfor %}";
  ExpectRefused("{% set ns = namespace(x=[]) %}" + loop + "{% set ns.x = [ns.x] %}" + end, "nested more than");
  ExpectRefused("{% set ns = namespace(x=[]) %}" + loop + "{% set ns.x = {'a': ns.x} %}" + end, "nested more than");
  ExpectRefused("{% set ns = namespace(x=[]) %}" + loop + "{% set ns.x = [ns.x.count] %}" + end, "nested more than");
  ExpectRefused("{% set ns = namespace(x=1) %}" + loop + "{% for y in [ns.x] %}{% set ns.x = loop %}{% endfor %}" + end,
                "nested more than");
}

// What holds itself must neither leak (seen by the address sanitizer) nor be freed recursively.
TEST(HostileTemplate, SelfReferences_EndWithTheRendering) {
  EXPECT_EQ(ErrorOf("{% set ns = namespace() %}{% set ns.a = ns %}{% set ns.b = [ns] %}"), "");
  EXPECT_EQ(ErrorOf("{% for x in [1] %}{% set q = loop.changed(loop) %}{% endfor %}"), "");
  EXPECT_EQ(ErrorOf("{% set h = namespace(p=none) %}{% for i in range(4) %}{% for j in range(20000) %}"
                    "{% set n = namespace(p=h.p) %}{% set h.p = n %}{% endfor %}{% endfor %}"),
            "");
}

// Sixty doublings of a shared list: to show, dump or compare it takes longer than anyone can wait.
TEST(HostileTemplate, SharedValues_AreChargedEachTimeTheyAreMet) {
  const std::string doubled =
      "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% set ns.y = [ns.y, ns.y] %}{% endfor %}";
  for (const char* use : {"{{ ns.x }}", "{{ ns.x | tojson }}", "{{ ns.x == ns.y }}", "{{ ns.x in [ns.y] }}", "{{ ns.x < ns.y }}"}) {
    EXPECT_NE(ErrorOf(doubled + use), "") << use;
  }
}

TEST(HostileTemplate, LargeResults_AreRefusedBeforeTheyAreMade) {
  for (const char* source : {
           "{{ 'x' * 99999999999 }}",
           "{{ [1] * 99999999999 }}",
           "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
           "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
           "{{ ('a' * 60000).replace('a', 'b' * 60000) }}",
           "{{ ('a' * 1000000) | join('b' * 1000000) }}",
           "{{ 'a'.center(99999999999) }}",
           "{{ 'a'.zfill(99999999999) }}",
           "{{ ('a\n' * 1000000) | indent('x' * 1000000) }}",
           "{{ ([1] * 1000000) | tojson(separators=('x' * 1000000, ':')) }}",
           "{{ range(99999999999999) }}",
           "{% for a in range(1000) %}{% for b in range(1000) %}{% for c in range(1000) %}{% endfor %}{% endfor %}{% endfor %}",
       }) {
    EXPECT_NE(ErrorOf(source), "") << source;
  }
}

// Each of these took more than 20 s when the work was not charged, or grew with the square of the text.
TEST(HostileTemplate, RepeatedWorkOnLargeValues_IsCharged) {
  for (const char* work :
       {"a[999999]", "a.upper()", "a.splitlines()", "a.count('b')", "a | trim", "a.find('z')", "a[::-1]", "a.strip('b')"}) {
    EXPECT_NE(ErrorOf("{% set a = 'é' * 1000000 %}{% for i in range(100000) %}{% set b = " + std::string(work) + " %}{% endfor %}"), "")
        << work;
  }
  EXPECT_EQ(ErrorOf("{% set a = 'a' * 1000000 %}{{ a.find('a' * 500000 ~ 'b') }}{{ ('a' * 500000 ~ 'b') in a }}"), "");
  EXPECT_EQ(ErrorOf("{{ ('a' * 1000000).strip(('bcdefghij' * 100000) ~ 'a') }}"), "");
}

TEST(HostileTemplate, ValuesWithoutAnOrder_AreSortedWithoutHarm) {
  EXPECT_EQ(ErrorOf("{% set n = 1e308 * 10 - 1e308 * 10 %}{% set ns = namespace(x=[]) %}{% for i in range(500) %}"
                    "{% set ns.x = ns.x + [n, i % 7, 1000 - i] %}{% endfor %}{{ ns.x | sort | length }}{{ ns.x | max }}{{ ns.x | min }}"),
            "");
}

}  // namespace
}  // namespace avocet::tokenizer
