// Attach requests: nobody gets through without the key.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "horo/net/attach.h"
#include "horo/net/listener.h"

namespace {

horo::net::AttachKeys fixed_keys() {
  auto key = [](unsigned char filler) {
    return *horo::net::Key::from_bytes(std::vector<std::byte>(32, std::byte{filler}));
  };
  return {horo::net::SessionId{}, 1, 0, key(1), key(2), key(3)};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using horo::net::AttachRequest;
  static const horo::net::AttachKeys keys = fixed_keys();
  auto bytes = std::as_bytes(std::span(data, size));
  if (horo::net::look_at(bytes) == horo::net::Opening::kUndecided && bytes.size() >= horo::net::kOpeningBytes)
    std::abort();
  if (bytes.size() < AttachRequest::kBytes) return 0;
  auto head = bytes.first<AttachRequest::kBytes>();
  auto request = horo::net::decode_attach_request(head);
  if (!request.ok()) return 0;
  // The key is not in the corpus: a MAC that holds would be a forgery.
  if (horo::net::check_request(head, *request, keys).ok()) std::abort();
  auto read = horo::net::decode_attach_request(horo::net::encode(*request, keys));
  if (!read.ok() || !(*read == *request)) std::abort();
  return 0;
}
