// Errors as clients see them: a status and the body of serving.md 2.5, {"error":{"message","type","param","code"}}.
// Two kinds of 400: a body that does not fit the schema ("Bad Request") and one that contradicts itself ("BadRequestError").
#pragma once

#include <expected>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"

namespace avocet::server {

struct ApiError {
  int status = 400;
  std::string type;
  std::string message;
  std::string param;  // dotted path of the field at fault; empty: null
};

template <typename T>
using ApiResult = std::expected<T, ApiError>;

inline constexpr std::string_view kSchemaErrorType = "Bad Request";
inline constexpr std::string_view kRequestErrorType = "BadRequestError";

// "BadRequestError", "NotFoundError", ... as the reference names them.
std::string_view ErrorType(int status);

// return Refuse(400, "stop", "stop[{}] is empty", i);
template <typename... Args>
[[nodiscard]] std::unexpected<ApiError> Refuse(int status, std::string param, fmt::format_string<Args...> format, Args&&... args) {
  return std::unexpected(
      ApiError{status, std::string(ErrorType(status)), fmt::format(format, std::forward<Args>(args)...), std::move(param)});
}

// An error of the layers below. kInvalidArgument is the client's, the rest is by code.
ApiError ToApiError(const Error& error);

std::string ErrorBody(const ApiError& error);

// The reason phrase that belongs to a status; AISBench reports it to its user.
std::string_view ReasonPhrase(int status);

}  // namespace avocet::server
