// What is asked of a store and what it answers.
#include <cstdint>
#include <span>

#include "horo/base/check.h"
#include "horo/rendezvous/store_request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace horo::rendezvous;
  const auto bytes = std::as_bytes(std::span(data, size));
  if (auto request = decode_store_request(bytes); request.ok()) {
    (void)check_request(*request).ok();
    const auto again = decode_store_request(encode(*request));
    HORO_CHECK(again.ok() && *again == *request, "a request survives being written and read");
  }
  (void)decode_store_reply(bytes).ok();
  return 0;
}
