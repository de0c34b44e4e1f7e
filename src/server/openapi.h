// The OpenAPI document of the server, /openapi.json: its routes, and the fields of the two requests that others are translated to.
// Constant for a server. Stateless.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "server/json_input.h"

namespace avocet::server {

struct ApiRoute {
  std::string_view path;     // "/v1/models/{name}"
  std::string_view methods;  // "GET, POST"
};

// A field that requests may have: a wrong type is a 400 that names it.
enum class FieldType : uint8_t { kBool, kInteger, kNumber, kText, kTextList, kObject, kList, kAny };
struct ApiField {
  std::string_view name;
  FieldType type;
  std::string_view help;
};
std::span<const ApiField> SharedFields();      // of chat and completions
std::span<const ApiField> ChatFields();        // beside these
std::span<const ApiField> CompletionFields();  // beside these

Json OpenApiDocument(std::span<const ApiRoute> routes, std::string_view version);

}  // namespace avocet::server
