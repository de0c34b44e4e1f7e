// Limits of one grammar. What exceeds them at compile time is refused; at run time it is left out, so that what is still allowed is
// always in the language.
#pragma once

#include <cstddef>
#include <cstdint>

namespace avocet::grammar {

inline constexpr size_t kSourceBytesMax = size_t{256} << 10;  // of a grammar, a regular expression or a schema
inline constexpr int32_t kNestingMax = 128;                   // groups in one another
inline constexpr int32_t kNodesMax = 100'000;                 // of an automaton, about 100 bytes each
inline constexpr int32_t kRepeatMax = 20'000;                 // the numbers of {m,n}
inline constexpr size_t kRulesMax = 50'000;
inline constexpr size_t kItemsMax = 500'000;           // expressions while building
inline constexpr size_t kConfigsMax = 1024;            // ways of reading the text so far that are followed at once
inline constexpr size_t kStacksMax = 100'000;          // distinct nestings
inline constexpr size_t kStatesMax = 50'000;           // distinct sets of ways
inline constexpr size_t kConfigsTotalMax = 2'000'000;  // of all states, 16 bytes each
inline constexpr size_t kVisitsMax = 40'000'000;       // steps of finding states, in the life of a table; about 50 ns each
inline constexpr size_t kMasksMax = 512;               // kept per grammar: 31 KB each with the family's vocabulary
inline constexpr size_t kGrammarsMax = 16;             // kept compiled

}  // namespace avocet::grammar
