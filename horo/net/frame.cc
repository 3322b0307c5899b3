#include "horo/net/frame.h"

#include "horo/base/text.h"
#include "horo/kernel/reduce.h"

namespace horo::net {
namespace {

constexpr size_t kCrcAt = FrameHeader::kBytes - 4;

template <class Number>
void put(FrameBytes& bytes, size_t at, Number value) {
  for (size_t i = 0; i < sizeof value; ++i) bytes[at + i] = static_cast<std::byte>(value >> (8 * i));
}

template <class Number>
Number get(std::span<const std::byte> bytes, size_t at) {
  Number value = 0;
  for (size_t i = 0; i < sizeof value; ++i) {
    value = static_cast<Number>(value | static_cast<Number>(static_cast<Number>(bytes[at + i]) << (8 * i)));
  }
  return value;
}

}  // namespace

FrameBytes encode(const FrameHeader& header) {
  FrameBytes bytes;
  put(bytes, 0, kFrameMagic);
  put(bytes, 4, header.version);
  put(bytes, 6, header.type);
  put(bytes, 7, header.flags);
  put(bytes, 8, header.epoch);
  put(bytes, 16, header.operation);
  put(bytes, 24, header.sequence);
  put(bytes, 32, header.offset);
  put(bytes, 40, header.group);
  put(bytes, 44, header.tag);
  put(bytes, 48, header.length);
  put(bytes, 52, header.payload_crc);
  put(bytes, 56, header.source);
  put(bytes, kCrcAt, kernel::crc32c(0, std::span(bytes).first(kCrcAt)));
  return bytes;
}

Result<FrameHeader> decode_frame(std::span<const std::byte, FrameHeader::kBytes> bytes, uint32_t most_payload,
                                 uint16_t version) {
  auto magic = get<uint32_t>(bytes, 0);
  if (magic != kFrameMagic) {
    return Status(Code::kCorrupt, text("a frame begins with ", magic, " instead of ", kFrameMagic,
                                       ": the peer does not speak this protocol, or the stream lost its place"));
  }
  auto stated = get<uint32_t>(bytes, kCrcAt);
  uint32_t computed = kernel::crc32c(0, bytes.first(kCrcAt));
  if (stated != computed) {
    return Status(Code::kCorrupt,
                  text("a frame's header was damaged under way: its checksum is ", computed, ", it states ", stated));
  }
  FrameHeader header;
  header.version = get<uint16_t>(bytes, 4);
  header.type = get<uint8_t>(bytes, 6);
  header.flags = get<uint8_t>(bytes, 7);
  header.epoch = get<uint64_t>(bytes, 8);
  header.operation = get<uint64_t>(bytes, 16);
  header.sequence = get<uint64_t>(bytes, 24);
  header.offset = get<uint64_t>(bytes, 32);
  header.group = get<uint32_t>(bytes, 40);
  header.tag = get<uint32_t>(bytes, 44);
  header.length = get<uint32_t>(bytes, 48);
  header.payload_crc = get<uint32_t>(bytes, 52);
  header.source = get<uint32_t>(bytes, 56);
  if (header.version != version) {
    return Status(Code::kIncompatible,
                  text("a frame of wire version ", header.version, " came where version ", version, " was agreed"));
  }
  if (header.type == 0) return Status(Code::kCorrupt, "a frame has type 0, which is never sent");
  if (header.length > most_payload) {
    return Status(Code::kCorrupt, text("a frame announces ", header.length, " bytes; the limit is ", most_payload));
  }
  return header;
}

void describe_payload(FrameHeader& header, std::span<const std::byte> payload) {
  header.length = static_cast<uint32_t>(payload.size());
  header.payload_crc = payload.empty() ? 0 : kernel::crc32c(0, payload);
}

Status check_payload(const FrameHeader& header, std::span<const std::byte> payload) {
  if (payload.size() != header.length) {
    return {Code::kCorrupt, text("a payload has ", payload.size(), " bytes, its header states ", header.length)};
  }
  uint32_t computed = payload.empty() ? 0 : kernel::crc32c(0, payload);
  if (computed == header.payload_crc) return {};
  return {Code::kCorrupt, text("a payload of ", payload.size(), " bytes was damaged under way: its checksum is ",
                               computed, ", its header states ", header.payload_crc)};
}

}  // namespace horo::net
