// The pieces of a text, as str.split and its relatives make them. Pure; pieces point into the text.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace avocet::tokenizer::jinja {

// At a separator that is not empty, at most splits_max times; a negative splits_max means always.
std::vector<std::string_view> Split(std::string_view text, std::string_view separator, int64_t splits_max);
// The same, counted from the end. The pieces are in text order.
std::vector<std::string_view> SplitFromEnd(std::string_view text, std::string_view separator, int64_t splits_max);
// At runs of white space, none at the ends; what is left when splits_max is reached keeps its own on the other side.
std::vector<std::string_view> SplitAtSpace(std::string_view text, int64_t splits_max);
std::vector<std::string_view> SplitAtSpaceFromEnd(std::string_view text, int64_t splits_max);

}  // namespace avocet::tokenizer::jinja
