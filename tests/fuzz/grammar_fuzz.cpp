// Grammars that strangers write: each is refused with a reason, or becomes states that bytes can be put through within the bounds. A
// state from which nothing may follow is one where the text may end. The first byte chooses the kind.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "grammar/bounds.h"
#include "grammar/grammar_cache.h"
#include "server/json_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace avocet::grammar;  // NOLINT(google-build-using-namespace): one function
  if (size == 0 || size > 4096) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  Source source;
  switch (data[0] % 5) {
    case 0: source.kind = SourceKind::kRegex; break;
    case 1: source.kind = SourceKind::kEbnf; break;
    case 2: source.kind = SourceKind::kJsonSchema; break;
    case 3: source.kind = SourceKind::kStructuralTag; break;
    default: source.kind = SourceKind::kToolCalls; break;
  }
  if (data[0] % 5 < 2) {
    source.text = text;
  } else {
    auto json = avocet::server::ParseJson(text, "the schema");
    if (!json) return 0;
    if (source.kind == SourceKind::kToolCalls) {
      source.tools.push_back({"f", *std::move(json)});
      source.markup = size % 2 == 0 ? CallMarkup::kFunctionTags : CallMarkup::kJsonTags;
    } else {
      source.json = *std::move(json);
    }
  }
  auto automaton = Compile(source);
  if (!automaton) {
    CHECK(!automaton.error().message.empty(), "refused without a reason");
    return 0;
  }
  StateTable table(*std::move(automaton));
  StateId state = table.start();
  CHECK(state != StateId::kDead, "a grammar that allows nothing was compiled");
  for (size_t i = 0; i < size && i < 64 && state != StateId::kDead; ++i) {
    if (!table.CanContinue(state)) CHECK(table.IsAccepting(state), "neither the end nor a way on");
    // A byte that may follow, as the input chooses among them.
    StateId next = StateId::kDead;
    for (int step = 0; step < 256 && next == StateId::kDead; ++step) next = table.Next(state, static_cast<uint8_t>(data[i] + step));
    const bool has_room = table.num_states() < kStatesMax && !table.IsWorn();
    CHECK(next != StateId::kDead || table.IsAccepting(state) || !has_room, "a dead end");
    state = next;
  }
  return 0;
}
