// The codec, and Hellos: what is accepted is read back the same after it is written.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "horo/net/codec.h"
#include "horo/net/hello.h"

namespace {

/// The first bytes choose what is read from the rest.
void read_anything(std::span<const std::byte> bytes) {
  if (bytes.size() < 16) return;
  horo::net::Reader in(bytes.subspan(16), "input");
  for (std::byte choice : bytes.first(16)) {
    size_t before = in.remaining();
    switch (static_cast<int>(choice) % 6) {
      case 0:
        in.u8();
        break;
      case 1:
        in.u64();
        break;
      case 2:
        in.boolean();
        break;
      case 3:
        if (in.bytes(100).size() > 100) std::abort();
        break;
      case 4:
        if (in.string(10).size() > 10) std::abort();
        break;
      default:
        if (in.count(7, 3) * 3 > in.remaining()) std::abort();
        break;
    }
    if (in.remaining() > before) std::abort();
  }
  static_cast<void>(in.finish().ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using horo::net::Hello;
  auto bytes = std::as_bytes(std::span(data, size));
  read_anything(bytes);
  if (bytes.size() >= Hello::kPrefixBytes) {
    auto length = horo::net::decode_hello_prefix(bytes.first<Hello::kPrefixBytes>());
    if (length.ok() && *length > Hello::kMostBytes) std::abort();
  }
  auto hello = horo::net::decode_hello_body(bytes);
  if (!hello.ok()) return 0;
  auto written = horo::net::encode(*hello);
  auto again = horo::net::decode_hello_body(std::span(written).subspan(Hello::kPrefixBytes));
  if (!again.ok() || !(*again == *hello)) std::abort();
  static_cast<void>(horo::net::agree(horo::net::local_hello(0, 4), *hello).ok());
  return 0;
}
