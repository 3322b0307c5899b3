#include "horo/transport/tcp/data_frame.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "horo/base/text.h"
#include "horo/kernel/reduce.h"

namespace horo::transport::tcp {

// A Signature is laid out as it travels.
static_assert(std::endian::native == std::endian::little);
static_assert(offsetof(Signature, root) == 4 && offsetof(Signature, count) == 8 && sizeof(Signature) == 16);

PrefixBytes encode(const Prefix& prefix) {
  PrefixBytes bytes;
  std::memcpy(bytes.data(), &prefix.signature, 16);
  std::memcpy(bytes.data() + 16, &prefix.total, 8);
  return bytes;
}

Result<Prefix> decode_prefix(std::span<const std::byte, kPrefixBytes> bytes, const net::FrameHeader& header) {
  uint32_t computed = kernel::crc32c(0, bytes);
  if (computed != header.tag) {
    return Status(Code::kCorrupt, text("the prefix of a frame was damaged under way: its checksum is ", computed,
                                       ", the header states ", header.tag));
  }
  Prefix prefix;
  std::memcpy(&prefix.signature, bytes.data(), 16);
  std::memcpy(&prefix.total, bytes.data() + 16, 8);
  return prefix;
}

std::string encode_refusal(const Status& why) {
  auto code = static_cast<uint32_t>(why.code());
  std::string payload(4, '\0');
  std::memcpy(payload.data(), &code, 4);
  return payload.append(why.message(), 0, kMostRefusal - 4);
}

Status decode_refusal(std::span<const std::byte> payload) {
  if (payload.size() < 4) {
    return Status(Code::kCorrupt, text("a refusal of ", payload.size(), " bytes has no code"));
  }
  uint32_t value = 0;
  std::memcpy(&value, payload.data(), 4);
  Code code = Code::kCorrupt;
  for (Code usable : {Code::kMismatch, Code::kUnavailable}) {
    if (value == static_cast<uint32_t>(usable)) code = usable;
  }
  std::string reason(reinterpret_cast<const char*>(payload.data()) + 4, payload.size() - 4);
  return Status(code, std::move(reason));
}

}  // namespace horo::transport::tcp
