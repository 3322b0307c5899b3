#include "horo/net/client_hello.h"

#include <cstdint>

namespace horo::net {
namespace {

constexpr size_t kRecordHeader = 5;
constexpr uint32_t kHandshakeRecord = 22;
constexpr uint32_t kClientHello = 1;
constexpr size_t kVersionAndRandom = 2 + 32;
constexpr uint32_t kPreSharedKey = 41;

/// Reads numbers and lists in network order; after the first that does not fit, everything is empty.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> data) : data_(data) {}

  uint32_t number(size_t bytes) {
    uint32_t value = 0;
    for (std::byte one : take(bytes)) value = value << 8 | static_cast<uint32_t>(one);
    return value;
  }
  std::span<const std::byte> take(size_t bytes) {
    if (bytes > data_.size()) return fail();
    const auto taken = data_.first(bytes);
    data_ = data_.subspan(bytes);
    return taken;
  }
  /// What a length of so many bytes announces.
  std::span<const std::byte> list(size_t length_bytes) { return take(number(length_bytes)); }
  bool ok() const { return ok_; }
  bool at_end() const { return data_.empty(); }

 private:
  std::span<const std::byte> fail() {
    ok_ = false;
    data_ = {};
    return {};
  }

  std::span<const std::byte> data_;
  bool ok_ = true;
};

}  // namespace

std::optional<size_t> record_bytes(std::span<const std::byte> first) {
  if (first.size() < kRecordHeader) return std::nullopt;
  return kRecordHeader + (static_cast<size_t>(first[3]) << 8 | static_cast<size_t>(first[4]));
}

std::optional<std::span<const std::byte>> offered_identity(std::span<const std::byte> record) {
  Cursor outer(record);
  if (outer.number(1) != kHandshakeRecord) return std::nullopt;
  outer.take(2);  // A version that means nothing any more.
  Cursor handshake(outer.list(2));
  if (handshake.number(1) != kClientHello) return std::nullopt;
  Cursor hello(handshake.list(3));
  hello.take(kVersionAndRandom);
  hello.list(1);  // Session id.
  hello.list(2);  // Cipher suites.
  hello.list(1);  // Compression methods.
  Cursor extensions(hello.list(2));
  if (!outer.ok() || !outer.at_end() || !handshake.ok() || !handshake.at_end() || !hello.ok() || !hello.at_end()) {
    return std::nullopt;
  }
  while (extensions.ok() && !extensions.at_end()) {
    const uint32_t type = extensions.number(2);
    Cursor content(extensions.list(2));
    if (!extensions.ok() || type != kPreSharedKey) continue;
    if (!extensions.at_end()) return std::nullopt;  // It is always the last one.
    Cursor identities(content.list(2));
    const auto identity = identities.list(2);
    identities.take(4);  // The age of a ticket.
    if (content.ok() && identities.ok() && !identity.empty()) return identity;
  }
  return std::nullopt;
}

}  // namespace horo::net
