// A tool parameter's raw text as the JSON value that its schema asks for (serving.md 3.4). Text that does not convert stays a string.
#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

namespace avocet::server {

// schema: the parameter's JSON schema, or null when the tool does not describe it. root: what local references (#/...) start from;
// others are never followed.
nlohmann::ordered_json ConvertParameter(std::string_view raw, const nlohmann::ordered_json& schema,
                                        const nlohmann::ordered_json& root = {});

// What "#/$defs/Name" points at; null for anything that is not there, or not in this document.
const nlohmann::ordered_json* FindReference(const nlohmann::ordered_json& root, std::string_view reference);

}  // namespace avocet::server
