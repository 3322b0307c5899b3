// First flights of strangers.
#include <cstdint>

#include "horo/base/check.h"
#include "horo/net/client_hello.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto whole = horo::net::record_bytes(bytes);
  const auto identity = horo::net::offered_identity(bytes);
  if (!identity) return 0;
  HORO_CHECK(whole == size, "only a whole record offers anything");
  HORO_CHECK(identity->data() > bytes.data() && identity->data() + identity->size() < bytes.data() + bytes.size(),
             "an identity lies within its record");
  return 0;
}
