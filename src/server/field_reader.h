// Typed access to the fields of a JSON object. A field that is absent or null has no value; one of the wrong type or out of range has
// none either and becomes a problem that names path, expectation and value. All problems of a request are reported together.
// Strict on types (a number written as text is refused), lenient on fields it does not know.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "server/api_error.h"
#include "server/json_input.h"

namespace avocet::server {

// kSchema: the body has the wrong form. kValue: the form is right, the value is not allowed.
enum class ProblemKind : uint8_t { kSchema, kValue };

class Problems {
 public:
  void Add(ProblemKind kind, std::string path, std::string message);
  bool empty() const { return num_ == 0; }
  ApiError ToError() const;  // up to 10 of them

 private:
  struct Problem {
    ProblemKind kind;
    std::string path;
    std::string message;
  };
  std::vector<Problem> problems_;
  size_t num_ = 0;
};

struct NumberRange {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool min_is_allowed = true;
};

class FieldReader {
 public:
  // object: borrowed. path: of the object, empty for the body.
  FieldReader(const Json& object, std::string path, Problems& problems);

  // The field's value; null when it is absent or null.
  const Json* Find(std::string_view name) const;
  std::string PathOf(std::string_view name) const;

  std::optional<int64_t> Int(std::string_view name, int64_t min, int64_t max);
  std::optional<double> Number(std::string_view name, NumberRange range);
  std::optional<bool> Bool(std::string_view name);
  std::optional<std::string> String(std::string_view name);
  const Json* Object(std::string_view name);
  const Json* List(std::string_view name);
  std::optional<std::vector<std::string>> Strings(std::string_view name);  // a list of strings
  // A list of token ids below vocab_size.
  std::optional<std::vector<int32_t>> TokenIds(std::string_view name, int32_t vocab_size);

  void Expected(std::string_view name, std::string_view what, const Json& got);  // a kSchema problem
  void NotAllowed(std::string_view name, std::string message);                   // a kValue problem
  Problems& problems() { return problems_; }

 private:
  const Json& object_;
  std::string path_;
  Problems& problems_;
};

// Reads every object of the list `name` in turn (absent: none). What is no object is refused: "tools.2: expected a tool, got 3".
ApiResult<void> EachObject(FieldReader& body, std::string_view name, std::string_view what,
                           FunctionRef<ApiResult<void>(FieldReader& fields, const std::string& path)> read);

// An integer written as 3 or 3.0; none for anything else.
std::optional<int64_t> IntegerOf(const Json& value);

// A list of integers from 0 to vocab_size - 1; the problem names the first other one.
std::optional<std::vector<int32_t>> TokenIdsOf(const Json& list, const std::string& path, int32_t vocab_size, Problems& problems);

}  // namespace avocet::server
