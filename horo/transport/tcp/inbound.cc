#include "horo/transport/tcp/inbound.h"

#include <algorithm>
#include <cstring>

#include "horo/kernel/reduce.h"

namespace horo::transport::tcp {

namespace {

/// combine_crc32c() wants a dtype for its size only.
DType dtype_of_size(size_t bytes) {
  switch (bytes) {
    case 1:
      return DType::kU8;
    case 2:
      return DType::kU16;
    case 4:
      return DType::kU32;
    case 8:
      return DType::kU64;
    default:
      HORO_CHECK(bytes == 16, "elements that can be combined have 1, 2, 4, 8 or 16 bytes");
      return DType::kC128;
  }
}

}  // namespace

net::IoResult Inbound::fill(const net::Socket& socket) {
  if (buffer_ == nullptr) buffer_ = std::make_unique_for_overwrite<std::byte[]>(kBuffer);
  if (begin_ > 0) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, buffered());
    end_ -= begin_;
    begin_ = 0;
  }
  net::IoResult result = socket.receive(std::span(buffer_.get() + end_, kBuffer - end_));
  end_ += result.bytes();
  return result;
}

void Inbound::start_skip(size_t bytes) {
  in_body_ = true;
  placing_ = false;
  left_ = bytes;
}

void Inbound::start_place(const Placement& placement, size_t bytes, bool checksum, uint32_t crc) {
  in_body_ = true;
  placing_ = true;
  left_ = bytes;
  checksum_ = checksum;
  crc_ = crc;
  placement_ = placement;
  part_bytes_ = 0;
}

bool Inbound::take_buffered() {
  size_t bytes = std::min(left_, buffered());
  if (bytes > 0 && placing_) place(buffer_.get() + begin_, bytes);
  begin_ += bytes;
  left_ -= bytes;
  return left_ == 0;
}

void Inbound::place(const std::byte* data, size_t bytes) {
  if (placement_.combine != nullptr) return combine(data, bytes);
  if (checksum_) {
    crc_ = kernel::copy_crc32c(placement_.into, data, bytes, crc_);
  } else {
    kernel::copy(placement_.into, data, bytes);
  }
  placement_.into += bytes;
}

/// Combines whole elements and keeps the rest for the bytes that follow.
void Inbound::combine(const std::byte* data, size_t bytes) {
  const size_t element = placement_.element_bytes;
  const size_t count = bytes / element;
  if (checksum_) {
    crc_ = kernel::combine_crc32c(placement_.combine, dtype_of_size(element),
                                  {placement_.into, placement_.with, data, count}, crc_);
  } else {
    placement_.combine(placement_.into, placement_.with, data, count);
  }
  const size_t whole = count * element;
  placement_.into += whole;
  placement_.with += whole;
  part_bytes_ = bytes - whole;
  std::memcpy(part_.data(), data + whole, part_bytes_);
}

net::IoResult Inbound::receive_body(const net::Socket& socket, Bounce& bounce) {
  HORO_CHECK(buffered() == 0 && left_ > 0, "what is in the buffer comes first");
  begin_ = end_ = 0;
  const bool straight = placing_ && placement_.combine == nullptr;
  const size_t before = straight || !placing_ ? 0 : part_bytes_;
  std::byte* landing = straight ? placement_.into : bounce.bytes().data() + before;
  const size_t room = std::min(left_, straight ? kAtOnce : Bounce::kBytes - before);
  std::array<std::span<std::byte>, 2> parts = {std::span(landing, room), std::span(buffer_.get(), kTail)};
  // Bytes behind the payload are welcome, but only where they are behind all of it.
  net::IoResult result = socket.receive(std::span<const std::span<std::byte>>(parts.data(), room == left_ ? 2 : 1));
  const size_t got = std::min(result.bytes(), room);
  end_ = result.bytes() - got;
  left_ -= got;
  if (got == 0 || !placing_) return result;
  if (straight) {
    if (checksum_) crc_ = kernel::crc32c(crc_, {landing, got});
    placement_.into += got;
  } else {
    std::memcpy(landing - before, part_.data(), before);
    combine(landing - before, before + got);
  }
  return result;
}

Inbound::Outcome Inbound::finish() {
  in_body_ = false;
  return {placing_, checksum_, crc_};
}

}  // namespace horo::transport::tcp
