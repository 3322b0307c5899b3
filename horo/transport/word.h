// The one thing that ranks synchronise on: a counter in shared memory that only grows and can be frozen for ever.
#pragma once

#include <atomic>
#include <cstdint>

namespace horo::transport {

/// A 61-bit counter and three flags in one 64-bit word.
///
/// Its owner advances it; anybody may set the flags. A flag once set stays. Everything is a sequentially consistent
/// read-modify-write, so all observers see one order of "advanced to k" and "revoked": after revoke() the counter never
/// changes again, and what it says then is the same for everybody. That is the fence against a rank that was stopped,
/// evicted and woke up again, and it is what makes outcomes uniform (docs/failure.md).
class Word {
 public:
  static constexpr uint64_t kSleeper = 1;  ///< Somebody sleeps on this word; whoever changes it wakes them.
  static constexpr uint64_t kRevoked = 2;  ///< Frozen.
  static constexpr uint64_t kEvicted = 4;  ///< Frozen because its owner is gone, or counts as gone.
  static constexpr int kFlagBits = 3;

  /// A value as it was read: counter and flags together.
  class Reading {
   public:
    explicit Reading(uint64_t bits) : bits_(bits) {}
    uint64_t count() const { return bits_ >> kFlagBits; }
    bool revoked() const { return (bits_ & kRevoked) != 0; }
    bool evicted() const { return (bits_ & kEvicted) != 0; }
    uint64_t bits() const { return bits_; }

   private:
    uint64_t bits_;
  };

  Reading read() const { return Reading(bits_.load(std::memory_order_seq_cst)); }

  /// By the owner alone. False, and nothing changed, if the word is revoked or its owner counts as gone: the others
  /// then use their memory again, so what the owner has read since it last advanced a word may be anything.
  bool advance(uint64_t count) {
    uint64_t old = bits_.load(std::memory_order_relaxed);
    do {
      if ((old & (kRevoked | kEvicted)) != 0) return false;
    } while (!bits_.compare_exchange_weak(old, count << kFlagBits, std::memory_order_seq_cst));
    if ((old & kSleeper) != 0) wake();
    return true;
  }

  /// Freezes the word. Wakes all who sleep on it.
  Reading revoke() { return set(kRevoked); }
  /// Freezes the word and marks its owner as gone.
  Reading evict() { return set(kRevoked | kEvicted); }
  /// Marks the owner as gone without a reading of the counter being final (for words that decide nothing).
  Reading mark_gone() { return set(kEvicted); }

  /// To go to sleep: sets kSleeper and returns what the word says now; sleep only while it still says that.
  Reading announce_sleep() { return Reading(bits_.fetch_or(kSleeper, std::memory_order_seq_cst) | kSleeper); }
  const std::atomic<uint64_t>& futex() const { return bits_; }

 private:
  Reading set(uint64_t flags) {
    uint64_t old = bits_.fetch_or(flags, std::memory_order_seq_cst);
    if ((old & kSleeper) != 0) wake();
    return Reading(old | flags);
  }
  void wake();

  std::atomic<uint64_t> bits_{0};
};
static_assert(sizeof(Word) == 8 && std::atomic<uint64_t>::is_always_lock_free);

}  // namespace horo::transport
