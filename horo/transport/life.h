// Noticing at once that a process is gone, however much memory it leaves behind.
#pragma once

#include <atomic>
#include <cstdint>

namespace horo::transport {

/// A word in shared memory that the kernel itself marks when the thread that holds it ends.
///
/// This is the kernel's robust-futex protocol without the mutex around it: the list is walked when the thread exits,
/// before the process's memory is torn down, so death shows within a millisecond or so even where descriptors of the
/// process close hundreds of milliseconds later. Sleepers on the word are woken (one of them; it tells the others).
class Life {
 public:
  /// The holder's thread ended, however it ended.
  bool ended() const { return (bits_.load(std::memory_order_seq_cst) & kOwnerDied) != 0; }
  /// The holder announced that it leaves in order.
  bool left() const { return left_.load(std::memory_order_seq_cst) != 0; }
  void announce_leaving() { left_.store(1, std::memory_order_seq_cst); }

  uint32_t value() const { return bits_.load(std::memory_order_seq_cst); }
  const std::atomic<uint32_t>& futex() const { return bits_; }

  /// As if the holder's thread had ended: for ranks that are threads, and for tests.
  void end();

 private:
  friend class LifeHolder;
  static constexpr uint32_t kOwnerDied = 0x40000000;  // FUTEX_OWNER_DIED
  static constexpr uint32_t kWaiters = 0x80000000;    // FUTEX_WAITERS: have the kernel wake a sleeper.

  std::atomic<uint32_t> bits_{0};
  std::atomic<uint32_t> left_{0};
};
static_assert(sizeof(Life) == 8);

/// Ties a Life to the calling thread until the thread or the holder ends, whichever is first. The thread must use no
/// robust mutexes (the kernel keeps one list per thread): horo's control thread holds it.
class LifeHolder {
 public:
  explicit LifeHolder(Life& life);
  /// On the same thread as the constructor.
  ~LifeHolder();
  LifeHolder(const LifeHolder&) = delete;
  LifeHolder& operator=(const LifeHolder&) = delete;

  /// Whether the kernel took the list (gVisor and some seccomp filters refuse it).
  bool supported() const { return supported_; }

 private:
  // The layout of struct robust_list_head (linux/futex.h), with our single entry beside it.
  struct Node {
    Node* next;
  };
  struct Head {
    Node list;
    long futex_offset;
    Node* pending;
  };

  Life& life_;
  Head head_;
  Node entry_;
  bool supported_ = false;
};

}  // namespace horo::transport
