// Frame headers from anyone: what is accepted must be written back to the same bytes.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "horo/net/frame.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using horo::net::FrameHeader;
  auto bytes = std::as_bytes(std::span(data, size));
  if (bytes.size() < FrameHeader::kBytes) return 0;
  auto head = bytes.first<FrameHeader::kBytes>();
  auto header = horo::net::decode_frame(head, 1 << 20);
  // Checksums stop nearly everything; the fields behind them are reached by writing a header with right ones.
  FrameHeader made;
  made.version = static_cast<uint16_t>(data[4] | data[5] << 8);
  made.type = data[6];
  made.length = static_cast<uint32_t>(data[48] | data[49] << 8 | data[50] << 16);
  auto again = horo::net::decode_frame(horo::net::encode(made), 1 << 20);
  if (again.ok() && !(*again == made)) std::abort();
  if (!header.ok()) return 0;
  if (!std::ranges::equal(horo::net::encode(*header), head)) std::abort();
  static_cast<void>(horo::net::check_payload(*header, bytes.subspan(FrameHeader::kBytes)).ok());
  return 0;
}
