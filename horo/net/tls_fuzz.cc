// A TLS acceptor that is fed arbitrary bytes: it never finishes the handshake, and never crashes.
//
// The first byte chooses how the rest is cut into pieces, since a stream may arrive in any.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "horo/net/identity.h"
#include "horo/net/tls.h"

namespace {

using namespace horo::net;

class MemoryWire final : public Wire {
 public:
  MemoryWire(std::span<const std::byte> input, size_t piece) : input_(input), piece_(piece) {}
  IoResult receive(std::span<std::byte> into) override {
    if (input_.empty()) return IoResult::end();
    paused_ = !paused_;
    if (paused_) return IoResult::would_block();
    size_t count = std::min({into.size(), input_.size(), piece_});
    std::copy_n(input_.begin(), count, into.begin());
    input_ = input_.subspan(count);
    return IoResult::moved(count);
  }
  IoResult send(std::span<const std::byte> data) override { return IoResult::moved(data.size()); }

 private:
  std::span<const std::byte> input_;
  size_t piece_;
  bool paused_ = true;
};

horo::Result<Key> find_key(std::span<const std::byte> encoded) {
  std::vector<std::byte> secret(Key::kBytes, std::byte{7});
  HORO_ASSIGN(Key key, Key::from_bytes(secret));
  HORO_ASSIGN(Identity identity, decode_identity(encoded));
  HORO_TRY(check_addressed(identity, "job", 0));
  return derive_psk(key, encoded);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto tls = *Tls::create();
  if (size < 1 || size > 4096) return 0;
  auto bytes = std::as_bytes(std::span(data, size));
  MemoryWire wire(bytes.subspan(1), 1 + static_cast<size_t>(bytes[0]) * 16);
  auto session = TlsSession::accept(tls, wire, find_key);
  while (true) {
    IoResult result = (*session)->handshake();
    // The fixed key's owner would have to draw the server's random bytes too.
    if (result.is_moved()) std::abort();
    if (!result.is_would_block()) return 0;
  }
}
