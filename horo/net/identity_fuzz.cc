// PSK identities: what is accepted has one form only.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "horo/net/identity.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto bytes = std::as_bytes(std::span(data, size));
  auto identity = horo::net::decode_identity(bytes);
  if (!identity.ok()) return 0;
  static_cast<void>(horo::net::check_addressed(*identity, "job", 0).ok());
  auto written = horo::net::encode(*identity);
  bool to_oneself = identity->connector == identity->acceptor;
  if (written.ok() == to_oneself) std::abort();
  if (written.ok() && !std::ranges::equal(*written, bytes)) std::abort();
  return 0;
}
