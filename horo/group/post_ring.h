// A stream of bytes from one rank to another through memory that only the writer can write.
//
// The bytes and how many were written lie in the writer's segment, how many were taken in the reader's. Counts only
// grow; the place of byte n is n modulo the size. Each side checks what the other's count claims before it uses it, and
// what either leaves behind when it is killed is whole: bytes that were not published were not written.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "horo/base/status.h"
#include "horo/group/bell.h"
#include "horo/group/post_stream.h"
#include "horo/transport/page.h"

namespace horo::group {

/// In the writer's segment.
struct alignas(transport::kCacheLine) RingHead {
  std::atomic<uint64_t> written{0};
  std::atomic<uint32_t> wants_room{0};  ///< The writer waits: whoever takes bytes rings its bell.
};
/// In the reader's segment.
struct alignas(transport::kCacheLine) RingTail {
  std::atomic<uint64_t> taken{0};
};
/// What a rank keeps in its segment for one other: of the ring it writes, and of the ring it reads.
struct RingSlot {
  RingHead head;
  RingTail tail;
};
static_assert(sizeof(RingSlot) == 2 * transport::kCacheLine && std::atomic<uint64_t>::is_always_lock_free);

class RingWriter : public Outlet {
 public:
  /// Bytes and head are this rank's own, the tail and the bell the reader's. All must outlive the writer.
  RingWriter(RingHead& head, std::span<std::byte> bytes, const RingTail& tail, BellWord& bell)
      : head_(head), bytes_(bytes), tail_(tail), bell_(bell) {}

  Result<size_t> put(std::span<const std::byte> bytes) override;
  void publish() override;

 private:
  Result<size_t> room();

  RingHead& head_;
  const std::span<std::byte> bytes_;
  const RingTail& tail_;
  BellWord& bell_;
  uint64_t written_ = 0;    ///< With what is not published yet.
  uint64_t published_ = 0;  ///< What head_.written says; never read back.
  uint64_t taken_ = 0;      ///< As last seen.
  bool waits_ = false;
};

class RingReader {
 public:
  RingReader(const RingHead& head, std::span<const std::byte> bytes, RingTail& tail, BellWord& bell)
      : head_(head), bytes_(bytes), tail_(tail), bell_(bell) {}

  /// The next bytes that lie together; empty when there are none. kCorrupt when the writer's count cannot be.
  Result<std::span<const std::byte>> readable() const;
  /// Of what was readable. The writer hears of it at release().
  void take(size_t bytes) { taken_ += bytes; }
  void release();

 private:
  const RingHead& head_;
  const std::span<const std::byte> bytes_;
  RingTail& tail_;
  BellWord& bell_;
  uint64_t taken_ = 0;
  uint64_t released_ = 0;
};

}  // namespace horo::group
