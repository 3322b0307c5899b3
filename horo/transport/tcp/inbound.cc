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

void Inbound::make_room() {
  if (buffer_ == nullptr) buffer_ = std::make_unique_for_overwrite<std::byte[]>(capacity());
  if (begin_ > 0) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, buffered());
    end_ -= begin_;
    begin_ = 0;
  }
}

net::IoResult Inbound::fill(const net::Socket& socket) {
  make_room();
  if (records_) return receive_record(socket);
  net::IoResult result = socket.receive(std::span(buffer_.get() + end_, capacity() - end_));
  end_ += result.bytes();
  return result;
}

/// Opens the next record, received before or now.
net::IoResult Inbound::receive_record(const net::Socket& socket) {
  HORO_CHECK(has_space(), "a record needs room to be opened");
  auto whole = records_->has_record();
  if (!whole.ok()) return net::IoResult::failed(whole.status());
  if (!*whole) {
    net::IoResult result = records_->receive(socket);
    if (!result.is_moved()) return result;
    whole = records_->has_record();
    if (!whole.ok()) return net::IoResult::failed(whole.status());
    if (!*whole) return result;
  }
  const size_t bytes = records_->record_bytes();
  const bool straight = placing_ && in_body_ && placement_.combine == nullptr && buffered() == 0 && bytes <= left_;
  if (straight) keep(bytes);
  Status opened = records_->open(straight ? placement_.into : buffer_.get() + end_);
  if (!opened.ok()) return net::IoResult::failed(std::move(opened));
  if (straight) {
    advance(bytes);
    left_ -= bytes;
  } else {
    end_ += bytes;
  }
  return net::IoResult::moved(bytes);
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
  kept_ = 0;
  part_bytes_ = 0;
}

bool Inbound::take_buffered() {
  size_t bytes = std::min(left_, buffered());
  if (bytes > 0 && placing_) place(buffer_.get() + begin_, bytes);
  begin_ += bytes;
  left_ -= bytes;
  return left_ == 0;
}

/// The next bytes of the destination are about to be overwritten.
void Inbound::keep(size_t bytes) {
  if (placement_.undo == nullptr || bytes <= kept_) return;
  placement_.undo->keep(placement_.into + kept_, bytes - kept_);
  kept_ = bytes;
}

void Inbound::advance(size_t bytes) {
  placement_.into += bytes;
  kept_ -= std::min(kept_, bytes);
}

void Inbound::place(const std::byte* data, size_t bytes) {
  if (placement_.combine != nullptr) return combine(data, bytes);
  keep(bytes);
  if (checksum_) {
    crc_ = kernel::copy_crc32c(placement_.into, data, bytes, crc_);
  } else {
    kernel::copy(placement_.into, data, bytes);
  }
  advance(bytes);
}

/// Combines whole elements and keeps the rest for the bytes that follow.
void Inbound::combine(const std::byte* data, size_t bytes) {
  const size_t element = placement_.element_bytes;
  if (part_bytes_ > 0) {
    const size_t missing = std::min(bytes, element - part_bytes_);
    std::memcpy(part_.data() + part_bytes_, data, missing);
    part_bytes_ += missing;
    if (part_bytes_ < element) return;
    combine_elements(part_.data(), 1);
    data += missing;
    bytes -= missing;
  }
  combine_elements(data, bytes / element);
  part_bytes_ = bytes % element;
  std::memcpy(part_.data(), data + (bytes - part_bytes_), part_bytes_);
}

void Inbound::combine_elements(const std::byte* data, size_t count) {
  keep(count * placement_.element_bytes);
  if (checksum_) {
    crc_ = kernel::combine_crc32c(placement_.combine, dtype_of_size(placement_.element_bytes),
                                  {placement_.into, placement_.with, data, count}, crc_);
  } else {
    placement_.combine(placement_.into, placement_.with, data, count);
  }
  advance(count * placement_.element_bytes);
  placement_.with += count * placement_.element_bytes;
}

net::IoResult Inbound::receive_body(const net::Socket& socket, Bounce& bounce) {
  HORO_CHECK(buffered() == 0 && left_ > 0, "what is in the buffer comes first");
  begin_ = end_ = 0;
  if (records_) return receive_record(socket);
  const bool straight = placing_ && placement_.combine == nullptr;
  const size_t before = straight || !placing_ ? 0 : part_bytes_;
  std::byte* landing = straight ? placement_.into : bounce.bytes().data() + before;
  const size_t room = std::min(left_, straight ? kAtOnce : Bounce::kBytes - before);
  if (straight) keep(room);
  std::array<std::span<std::byte>, 2> parts = {std::span(landing, room), std::span(buffer_.get(), kTail)};
  // Bytes behind the payload are welcome, but only where they are behind all of it.
  net::IoResult result = socket.receive(std::span<const std::span<std::byte>>(parts.data(), room == left_ ? 2 : 1));
  const size_t got = std::min(result.bytes(), room);
  end_ = result.bytes() - got;
  left_ -= got;
  if (got == 0 || !placing_) return result;
  if (straight) {
    if (checksum_) crc_ = kernel::crc32c(crc_, {landing, got});
    advance(got);
  } else {
    std::memcpy(landing - before, part_.data(), before);
    part_bytes_ = 0;
    combine(landing - before, before + got);
  }
  return result;
}

Inbound::Outcome Inbound::finish() {
  in_body_ = false;
  return {placing_, checksum_, crc_};
}

}  // namespace horo::transport::tcp
