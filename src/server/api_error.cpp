#include "server/api_error.h"

#include "server/json_input.h"

namespace avocet::server {

std::string_view ErrorType(int status) {
  switch (status) {
    case 400: return kRequestErrorType;
    case 401: return "UnauthorizedError";
    case 404: return "NotFoundError";
    case 405: return "MethodNotAllowedError";
    case 408: return "RequestTimeoutError";
    case 413: return "RequestEntityTooLargeError";
    case 414: return "UriTooLongError";
    case 422: return "UnprocessableEntityError";
    case 431: return "RequestHeaderFieldsTooLargeError";
    case 501: return "NotImplementedError";
    case 503: return "ServiceUnavailableError";
    default: return "InternalServerError";
  }
}

std::string_view ReasonPhrase(int status) {
  switch (status) {
    case 200: return "OK";
    case 204: return "No Content";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Request Entity Too Large";
    case 414: return "Request-URI Too Long";
    case 422: return "Unprocessable Entity";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
    default: return "Error";
  }
}

ApiError ToApiError(const Error& error) {
  const int status = [&] {
    switch (error.code) {
      case Errc::kInvalidArgument: return 400;
      case Errc::kNotFound: return 404;
      case Errc::kUnsupported: return 501;
      case Errc::kResourceExhausted:
      case Errc::kCancelled: return 503;
      case Errc::kIo:
      case Errc::kCorrupt:
      case Errc::kInternal: return 500;
    }
    return 500;
  }();
  return {status, std::string(ErrorType(status)), error.message, error.param};
}

std::string ErrorBody(const ApiError& error) {
  Json fields = Json::object();
  fields["message"] = error.message;
  fields["type"] = error.type.empty() ? std::string(ErrorType(error.status)) : error.type;
  fields["param"] = error.param.empty() ? Json(nullptr) : Json(error.param);
  fields["code"] = error.status;
  return DumpJson(Json{{"error", std::move(fields)}});
}

}  // namespace avocet::server
