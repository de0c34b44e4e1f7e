// The Responses form of a request, /v1/responses, as the chat request that asks for the same (serving.md 2.12). Stateless but for the
// store that earlier responses are looked up in.
#pragma once

#include <string>

#include "server/api_error.h"
#include "server/json_input.h"
#include "server/response_store.h"

namespace avocet::server {

// What the answer repeats of the request, and what is kept of it.
struct ResponseRequest {
  Json chat;  // the chat body
  Json echo;  // fields of the answer
  bool is_stored = false;
};

// store: null: nothing is stored, and nothing may be referred to.
ApiResult<ResponseRequest> ReadResponseRequest(const Json& body, const ResponseStore* store);

}  // namespace avocet::server
