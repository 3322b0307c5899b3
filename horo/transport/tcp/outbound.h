// The sending half of a data stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "horo/net/frame.h"
#include "horo/net/io_result.h"
#include "horo/net/record.h"
#include "horo/net/socket.h"
#include "horo/transport/tcp/data_frame.h"

namespace horo::transport::tcp {

/// A batch of frames on its way into a socket. Heads and small payloads are copied together, so that many small
/// messages cost one system call; large payloads are sent from where they lie, each checksummed right before it goes,
/// so that the kernel's copy finds it in the cache. On an encrypted stream everything is sealed on its way, heads and
/// small payloads in records of their own, so that the records of large payloads can be opened where they belong.
class Outbound {
 public:
  /// From now on, and before anything is added.
  void encrypt(net::RecordCipher cipher) { cipher_ = std::move(cipher); }

  /// Payloads up to this are copied.
  static constexpr size_t kSmall = 2048;

  bool empty() const { return pieces_.empty() && sealed_.empty(); }
  /// All that is here is of an operation that is over: the peer reads it when it reads what comes behind it, and
  /// perhaps not before.
  bool is_left_over() const { return left_over_; }
  void leave_over() { left_over_ = !empty(); }
  /// Whether another frame goes into this batch.
  bool has_room() const;

  /// Adds a frame; the header's type, flags, tag, length and checksum are filled in. `data` must stay until it is sent,
  /// or until keep_begun().
  void add(net::FrameHeader header, const PrefixBytes& prefix, std::span<const std::byte> data, bool checksum);
  /// Adds a frame with a payload of its own, which is copied.
  void add_copied(net::FrameHeader header, std::span<const std::byte> payload);

  /// One attempt to send what is here.
  net::IoResult flush(const net::Socket& socket);

  /// The batch's memory is about to go. A frame that is partly sent must be completed or the peer loses its place in
  /// the stream, and it must be completed truthfully or the peer finds it damaged: what is left is copied. A batch of
  /// which nothing is sent yet is dropped.
  void keep_begun();

 private:
  static constexpr size_t kStaging = 32 << 10;
  static constexpr size_t kEnough = 64 << 10;  // Bytes in a batch from which on it goes.

  static constexpr size_t kRecord = 32 << 10;       // Sealed bytes are still in the first-level cache at the tag.
  static constexpr size_t kSealAtOnce = 128 << 10;  // Sealed bytes that are sent with one call, about.

  std::byte* stage(size_t bytes);
  void advance(size_t bytes);
  void all_sent();
  Status seal_some();
  net::IoResult flush_sealed(const net::Socket& socket);

  std::vector<std::byte> staging_;  // Never grows beyond its capacity while pieces_ point into it.
  std::vector<std::span<const std::byte>> pieces_;
  size_t first_ = 0;  // Pieces before it are sent.
  size_t bytes_ = 0;
  bool begun_ = false;
  bool left_over_ = false;

  std::optional<net::RecordCipher> cipher_;
  std::vector<std::byte> sealed_;  // Records of what was before first_, from sent_ on still to be sent.
  size_t sent_ = 0;
};

}  // namespace horo::transport::tcp
