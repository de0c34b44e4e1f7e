// Structured output as requests ask for it (serving.md 2.6, 2.7): response_format, structured_outputs and the older guided_* fields, all
// to one grammar source. What the grammar itself cannot be is found when it is compiled. Stateless.
#pragma once

#include <optional>
#include <string>

#include "grammar/grammar_cache.h"
#include "server/field_reader.h"

namespace avocet::server {

struct Structure {
  grammar::Source source;
  std::string field;  // that asked for it, for messages
};

// At most one of them; empty: any text.
std::optional<Structure> ReadStructure(FieldReader& reader);

}  // namespace avocet::server
