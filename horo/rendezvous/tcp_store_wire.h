// What clients and server of the tcp store agree on.
#pragma once

#include <cstdint>

#include "horo/net/frame.h"
#include "horo/rendezvous/store.h"

namespace horo::rendezvous {

/// FrameHeader::type; its `sequence` is the number of the request on its connection.
enum class StoreFrame : uint8_t {
  kRequest = 1,
  kReply = 2,
  kForget = 3,  ///< The client does not wait for this reply any more.
};

inline constexpr uint32_t kMostStoreMessage = 16 << 20;

inline net::FrameHeader store_header(StoreFrame type, uint64_t sequence) {
  net::FrameHeader header;
  header.type = static_cast<uint8_t>(type);
  header.sequence = sequence;
  return header;
}

}  // namespace horo::rendezvous
