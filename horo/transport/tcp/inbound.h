// The receiving half of a data stream.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "horo/net/frame.h"
#include "horo/net/io_result.h"
#include "horo/net/record.h"
#include "horo/net/socket.h"
#include "horo/transport/mesh.h"
#include "horo/transport/tcp/data_frame.h"

namespace horo::transport::tcp {

/// Where bytes that are combined or skipped land on their way. One for all streams of a mesh, so that it stays in the
/// second-level cache.
class Bounce {
 public:
  static constexpr size_t kBytes = 256 << 10;
  std::span<std::byte> bytes() {
    if (memory_ == nullptr) memory_ = std::make_unique_for_overwrite<std::byte[]>(kBytes);
    return {memory_.get(), kBytes};
  }

 private:
  std::unique_ptr<std::byte[]> memory_;
};

/// Takes a stream apart. Heads and small payloads come through a buffer, many with one system call; the rest of a large
/// payload is received straight to its destination (or, to be combined, into the bounce buffer), together with the head
/// of the frame behind it. Checksums are computed on bytes that are in the cache. The records of an encrypted stream
/// are opened straight to their destination where all of one belongs there, else into the buffer.
class Inbound {
 public:
  /// From now on, and before anything is received.
  void encrypt(net::RecordCipher cipher) { records_.emplace(std::move(cipher)); }

  /// Within a frame: its payload is being placed or skipped.
  bool in_body() const { return in_body_; }
  size_t buffered() const { return end_ - begin_; }
  std::span<const std::byte> peek(size_t bytes) const { return {buffer_.get() + begin_, bytes}; }
  bool has_space() const { return buffered() < kBuffer; }

  /// One attempt to receive into the buffer, which has_space().
  net::IoResult fill(const net::Socket& socket);

  void consume(size_t bytes) { begin_ += bytes; }
  /// Goes on with `bytes` of payload that are to be thrown away.
  void start_skip(size_t bytes);
  /// Goes on with `bytes` of payload for `placement`. `crc` is that of the payload before them.
  void start_place(const Placement& placement, size_t bytes, bool checksum, uint32_t crc);

  /// Takes from the buffer what belongs to the body. True when the body is complete.
  bool take_buffered();
  /// One attempt to receive more of the body; the buffer is empty.
  net::IoResult receive_body(const net::Socket& socket, Bounce& bounce);
  bool body_complete() const { return left_ == 0; }
  /// Ends a body that is complete. Whether it was placed, and if so with which checksum.
  struct Outcome {
    bool placed = false;
    bool checked = false;
    uint32_t crc = 0;
  };
  Outcome finish();

  /// The destination is about to go: throws away the rest of the body.
  void forget_destination() { placing_ = false; }

 private:
  static constexpr size_t kBuffer = 64 << 10;
  static constexpr size_t kAtOnce = 256 << 10;  // Received before the checksum catches up.
  static constexpr size_t kTail = 512;          // What is received of the next frame along with a payload.

  /// Records are opened whole.
  size_t capacity() const { return records_ ? kBuffer + net::kMostRecord : kBuffer; }
  void make_room();
  void place(const std::byte* data, size_t bytes);
  void keep(size_t bytes);
  void advance(size_t bytes);
  void combine(const std::byte* data, size_t bytes);
  void combine_elements(const std::byte* data, size_t count);
  net::IoResult receive_record(const net::Socket& socket);

  std::unique_ptr<std::byte[]> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;

  bool in_body_ = false;
  size_t left_ = 0;  // Of the body, not received yet.
  bool placing_ = false;
  bool checksum_ = false;
  uint32_t crc_ = 0;
  Placement placement_;  // Advances.
  size_t kept_ = 0;      // Behind placement_.into, by its undo.
  // The beginning of an element whose end has not arrived.
  std::array<std::byte, 16> part_;
  size_t part_bytes_ = 0;

  std::optional<net::RecordReader> records_;
};

}  // namespace horo::transport::tcp
