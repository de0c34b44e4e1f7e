#include "server/random_id.h"

#include <array>

#include <fmt/format.h>
#include <openssl/rand.h>

#include "base/check.h"

namespace avocet::server {

std::string RandomHex() {
  std::array<unsigned char, 16> bytes{};
  CHECK(RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) == 1, "the system's random source failed");
  std::string hex;
  for (const unsigned char byte : bytes) hex += fmt::format("{:02x}", byte);
  return hex;
}

}  // namespace avocet::server
