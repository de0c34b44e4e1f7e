// A tool parameter's raw text as the JSON value that its schema asks for (serving.md 3.4). Text that does not convert stays a string.
#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

namespace avocet::server {

// schema: the parameter's JSON schema, or null when the tool does not describe it.
nlohmann::ordered_json ConvertParameter(std::string_view raw, const nlohmann::ordered_json& schema);

}  // namespace avocet::server
