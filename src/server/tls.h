// Certificates and keys to a TLS context. A context is replaced when the files change (--enable-ssl-refresh); connections keep the one
// that they began with, hence shared_ptr. Included by the http .cpp files only.
#pragma once

#include <memory>
#include <string>

#include <boost/asio/ssl/context.hpp>

#include "base/error.h"
#include "server/server_options.h"

namespace avocet::server::internal {

using TlsContext = std::shared_ptr<boost::asio::ssl::context>;

// Reads the files; the error names the flag.
Result<TlsContext> MakeTlsContext(const TlsOptions& options);

// Changes when one of the files does.
std::string TlsFilesState(const TlsOptions& options);

}  // namespace avocet::server::internal
