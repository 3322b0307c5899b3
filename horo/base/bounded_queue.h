// A queue of fixed size that many threads fill and one empties, without locks.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <memory>
#include <utility>

namespace horo {

/// push() comes from any thread and never waits: a full queue refuses. pop() comes from one thread at a time.
///
/// Every slot says whose turn it is: the number of the push it is free for, or one more once that push has filled it.
/// (D. Vyukov's bounded queue, with one consumer.)
template <class T>
class BoundedQueue {
 public:
  /// `capacity` is rounded up to a power of two.
  explicit BoundedQueue(size_t capacity)
      : mask_(std::bit_ceil(capacity) - 1), slots_(std::make_unique<Slot[]>(mask_ + 1)) {
    for (size_t i = 0; i <= mask_; ++i) slots_[i].turn.store(i, std::memory_order_relaxed);
  }

  /// False, and `value` is as it was, when the queue is full.
  bool push(T& value) {
    size_t at = next_.load(std::memory_order_relaxed);
    while (true) {
      Slot& slot = slots_[at & mask_];
      const auto ahead = static_cast<ptrdiff_t>(slot.turn.load(std::memory_order_acquire) - at);
      if (ahead < 0) return false;
      if (ahead > 0) {
        at = next_.load(std::memory_order_relaxed);
      } else if (next_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) {
        slot.value = std::move(value);
        slot.turn.store(at + 1, std::memory_order_release);
        return true;
      }
    }
  }

  /// False when nothing is there.
  bool pop(T& value) {
    if (empty()) return false;
    Slot& slot = slots_[first_ & mask_];
    value = std::exchange(slot.value, T{});
    slot.turn.store(first_ + mask_ + 1, std::memory_order_release);
    ++first_;
    return true;
  }

  /// By the thread that pops.
  bool empty() const { return slots_[first_ & mask_].turn.load(std::memory_order_acquire) != first_ + 1; }

 private:
  struct Slot {
    std::atomic<size_t> turn;
    T value{};
  };
  const size_t mask_;
  const std::unique_ptr<Slot[]> slots_;
  alignas(64) std::atomic<size_t> next_{0};  ///< Number of the next push.
  alignas(64) size_t first_ = 0;             ///< Number of the next pop.
};

}  // namespace horo
