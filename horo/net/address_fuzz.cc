// Addresses as users, cards and stores write them, and the first bytes of connections.
#include <cstdint>
#include <span>
#include <string_view>

#include "horo/base/check.h"
#include "horo/net/address.h"
#include "horo/net/listener.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace horo::net;
  const auto address = Address::parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (address.ok()) {
    const auto again = Address::parse(address->to_string());
    HORO_CHECK(again.ok() && *again == *address, "an address is read as it is written");
  }
  const auto opening = look_at(std::as_bytes(std::span(data, size)).first(std::min(size, kOpeningBytes)));
  HORO_CHECK(size < kOpeningBytes || opening != Opening::kUndecided, "the first bytes decide");
  return 0;
}
