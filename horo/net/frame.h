// The header in front of every message on control channels and data streams.
//
// 64 bytes, one cache line, little-endian:
//
//   at  bytes  field
//    0      4  magic        "HORO"
//    4      2  version      of the wire; agreed in the Hello
//    6      1  type         belongs to the module that sends it; 0 is never sent
//    7      1  flags        belongs to the type
//    8      8  epoch        of the membership
//   16      8  operation    number of the operation in its group
//   24      8  sequence     number of the message between these two peers
//   32      8  offset       of this payload within its message
//   40      4  group        id of the group
//   44      4  tag          step of a plan, stream, or what the type says
//   48      4  length       bytes of payload that follow
//   52      4  payload_crc  CRC-32C of the payload, 0 for an empty one
//   56      4  source       rank of the sender in the group, or what the type says
//   60      4  header_crc   CRC-32C of the 60 bytes before
//
// A checksum finds damage, not malice: on plain data streams it is what protects, in control channels TLS does.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "horo/base/status.h"

namespace horo::net {

inline constexpr uint32_t kFrameMagic = 0x4F524F48;  // "HORO"
/// The lowest and highest wire version of this build. What ranks read in each other's memory is part of it: they meet
/// over channels before they share any.
inline constexpr uint16_t kWireVersionLowest = 1;
inline constexpr uint16_t kWireVersionHighest = 1;

struct FrameHeader {
  static constexpr size_t kBytes = 64;

  uint16_t version = kWireVersionHighest;
  uint8_t type = 0;
  uint8_t flags = 0;
  uint64_t epoch = 0;
  uint64_t operation = 0;
  uint64_t sequence = 0;
  uint64_t offset = 0;
  uint32_t group = 0;
  uint32_t tag = 0;
  uint32_t length = 0;
  uint32_t payload_crc = 0;
  uint32_t source = 0;

  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

using FrameBytes = std::array<std::byte, FrameHeader::kBytes>;

FrameBytes encode(const FrameHeader& header);

/// kCorrupt for a wrong magic (not our protocol), a bad header checksum (damaged), type 0, or a payload longer than
/// `most_payload`; kIncompatible for another wire version than `version`. The message tells the two values that differ.
Result<FrameHeader> decode_frame(std::span<const std::byte, FrameHeader::kBytes> bytes, uint32_t most_payload,
                                 uint16_t version = kWireVersionHighest);

/// Sets length and checksum for `payload`.
void describe_payload(FrameHeader& header, std::span<const std::byte> payload);
/// kCorrupt unless `payload` has the header's length and checksum.
Status check_payload(const FrameHeader& header, std::span<const std::byte> payload);

}  // namespace horo::net
