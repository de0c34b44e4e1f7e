// Errors that are values: what can be expected to go wrong (a bad file, a bad request, a full cache).
// Bugs are CHECKs (check.h). A message says what was attempted, the value, the limit and the knob, in lower case without a full stop.
#pragma once

#include <expected>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace avocet {

enum class Errc {
  kInvalidArgument,    // the caller's input is wrong: HTTP 400, or exit code 1 at start
  kNotFound,           // a named thing does not exist: HTTP 404
  kUnsupported,        // understood, but not offered: HTTP 501 or exit code 1
  kResourceExhausted,  // a bounded queue or pool is full: HTTP 503
  kIo,                 // the operating system refused
  kCorrupt,            // a file contradicts itself or its format
  kCancelled,          // the peer or an operator withdrew the work
  kInternal,           // our fault, but contained to one request
};

struct Error {
  Errc code = Errc::kInternal;
  std::string message;
  std::string param;  // the request field or flag at fault, if there is one
};

template <typename T>
using Result = std::expected<T, Error>;

// return Fail(Errc::kCorrupt, "tensor {} ends at byte {}, the file has {}", name, end, size);
template <typename... Args>
[[nodiscard]] std::unexpected<Error> Fail(Errc code, fmt::format_string<Args...> format, Args&&... args) {
  return std::unexpected(Error{code, fmt::format(format, std::forward<Args>(args)...), {}});
}

// As Fail, and names the request field or flag at fault.
template <typename... Args>
[[nodiscard]] std::unexpected<Error> FailParam(std::string param, fmt::format_string<Args...> format, Args&&... args) {
  return std::unexpected(Error{Errc::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...), std::move(param)});
}

}  // namespace avocet

#define AVOCET_CONCAT_INNER(a, b) a##b
#define AVOCET_CONCAT(a, b) AVOCET_CONCAT_INNER(a, b)

// AVOCET_TRY(auto file, Open(path)): the value, or return the error to the caller.
#define AVOCET_TRY(declaration, ...)                                                 \
  auto AVOCET_CONCAT(try_result_, __LINE__) = (__VA_ARGS__);                         \
  if (!AVOCET_CONCAT(try_result_, __LINE__)) {                                       \
    return std::unexpected(std::move(AVOCET_CONCAT(try_result_, __LINE__)).error()); \
  }                                                                                  \
  declaration = *std::move(AVOCET_CONCAT(try_result_, __LINE__))

// AVOCET_TRY_VOID(Check(x)): for Result<void>.
#define AVOCET_TRY_VOID(...)                                 \
  do {                                                       \
    if (auto try_result = (__VA_ARGS__); !try_result) {      \
      return std::unexpected(std::move(try_result).error()); \
    }                                                        \
  } while (false)
