// What ranks publish about themselves, as it comes from the store.
#include <cstdint>
#include <span>

#include "horo/base/check.h"
#include "horo/rendezvous/host.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  auto card = horo::rendezvous::decode_card(bytes);
  if (card.ok()) {
    const auto again = horo::rendezvous::decode_card(horo::rendezvous::encode(*card));
    HORO_CHECK(again.ok() && *again == *card, "a card survives being written and read");
  }
  return 0;
}
