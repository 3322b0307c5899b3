#include "horo/net/codec.h"

#include <limits>

#include "horo/base/text.h"

namespace horo::net {

void Writer::raw(std::span<const std::byte> data) {
  if (overflow_ || data.size() > limit_ - data_.size()) {
    overflow_ = true;
    return;
  }
  data_.insert(data_.end(), data.begin(), data.end());
}

void Writer::bytes(std::span<const std::byte> data) {
  count(data.size());
  raw(data);
}

void Writer::count(size_t elements) {
  if (elements > std::numeric_limits<uint32_t>::max()) overflow_ = true;
  u32(static_cast<uint32_t>(elements));
}

void Writer::number(uint64_t value, size_t bytes) {
  std::byte little[8];
  for (size_t i = 0; i < bytes; ++i) little[i] = static_cast<std::byte>(value >> (8 * i));
  raw({little, bytes});
}

Status Writer::status() const {
  if (ok()) return {};
  return {Code::kInvalidArgument, text("a message is longer than its limit of ", limit_, " bytes")};
}

uint64_t Reader::number(size_t bytes) {
  uint64_t value = 0;
  auto little = raw(bytes);
  for (size_t i = 0; i < little.size(); ++i) value |= static_cast<uint64_t>(little[i]) << (8 * i);
  return value;
}

bool Reader::boolean() {
  uint8_t value = u8();
  if (value > 1) fail("a truth value is neither 0 nor 1");
  return value == 1;
}

std::span<const std::byte> Reader::raw(size_t bytes) {
  if (!ok()) return {};
  if (bytes > remaining()) {
    fail(text("it ends after ", data_.size(), " bytes, ", bytes - remaining(), " too early"));
    return {};
  }
  auto found = data_.subspan(at_, bytes);
  at_ += bytes;
  return found;
}

std::span<const std::byte> Reader::bytes(size_t limit) { return raw(count(limit, 1)); }

std::string Reader::string(size_t limit) {
  auto found = bytes(limit);
  return {reinterpret_cast<const char*>(found.data()), found.size()};
}

size_t Reader::count(size_t limit, size_t element_bytes) {
  HORO_CHECK(element_bytes > 0, "elements without bytes cannot be bounded by what arrived");
  size_t elements = u32();
  if (elements > limit) {
    fail(text("a length of ", elements, " exceeds the limit of ", limit));
    return 0;
  }
  if (elements > remaining() / element_bytes) {
    fail(text("a length of ", elements, " exceeds the ", remaining(), " bytes that are left"));
    return 0;
  }
  return ok() ? elements : 0;
}

void Reader::fail(std::string_view why) {
  if (ok()) status_ = Status(Code::kCorrupt, text(what_, " is malformed: ", why));
}

Status Reader::finish() {
  if (remaining() > 0) fail(text(remaining(), " bytes are left over"));
  return status_;
}

}  // namespace horo::net
