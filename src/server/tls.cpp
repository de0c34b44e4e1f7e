#include "server/tls.h"

#include <sys/stat.h>

#include <cstring>
#include <string_view>

#include <fmt/format.h>
#include <openssl/ssl.h>

#include "base/printable.h"

namespace avocet::server::internal {

namespace ssl = boost::asio::ssl;

namespace {

// HTTP/1.1 is what is spoken here, whatever else a client would like.
int ChooseProtocol(SSL* /*ssl*/, const unsigned char** out, unsigned char* out_size, const unsigned char* in, unsigned int in_size,
                   void* /*argument*/) {
  static constexpr unsigned char kHttp11[] = "\x08http/1.1";
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, out_size, kHttp11, sizeof(kHttp11) - 1, in, in_size) != OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_NOACK;
  }
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

}  // namespace

Result<TlsContext> MakeTlsContext(const TlsOptions& options) {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  boost::system::error_code error;
  context->set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 | ssl::context::no_sslv3 | ssl::context::no_tlsv1 |
                           ssl::context::no_tlsv1_1,
                       error);
  context->use_certificate_chain_file(options.certfile, error);
  if (error) return Fail(Errc::kInvalidArgument, "--ssl-certfile {}: {}", Printable(options.certfile), error.message());
  const std::string& keyfile = options.keyfile.empty() ? options.certfile : options.keyfile;
  context->use_private_key_file(keyfile, ssl::context::pem, error);
  if (error) return Fail(Errc::kInvalidArgument, "--ssl-keyfile {}: {}", Printable(keyfile), error.message());
  if (SSL_CTX_check_private_key(context->native_handle()) != 1) {
    return Fail(Errc::kInvalidArgument, "--ssl-keyfile {} does not belong to --ssl-certfile {}", Printable(keyfile),
                Printable(options.certfile));
  }
  if (!options.ca_certs.empty()) {
    context->load_verify_file(options.ca_certs, error);
    if (error) return Fail(Errc::kInvalidArgument, "--ssl-ca-certs {}: {}", Printable(options.ca_certs), error.message());
  }
  if (!options.ciphers.empty() && SSL_CTX_set_cipher_list(context->native_handle(), options.ciphers.c_str()) != 1) {
    return Fail(Errc::kInvalidArgument, "--ssl-ciphers {}: no cipher that is known here", Printable(options.ciphers));
  }
  const bool asks = options.client_certificates != ClientCertificates::kNone;
  const bool requires_one = options.client_certificates == ClientCertificates::kRequired;
  context->set_verify_mode(asks ? ssl::verify_peer | (requires_one ? ssl::verify_fail_if_no_peer_cert : 0) : ssl::verify_none, error);
  SSL_CTX_set_alpn_select_cb(context->native_handle(), ChooseProtocol, nullptr);
  return context;
}

std::string TlsFilesState(const TlsOptions& options) {
  std::string state;
  for (const std::string& path : {options.certfile, options.keyfile, options.ca_certs}) {
    struct stat info{};
    if (path.empty() || stat(path.c_str(), &info) != 0) continue;
    state += fmt::format("{}.{}.{} ", info.st_mtim.tv_sec, info.st_mtim.tv_nsec, info.st_ino);
  }
  return state;
}

}  // namespace avocet::server::internal
