// Sleeping on 32-bit words that several processes share.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "horo/base/deadline.h"

namespace horo::transport {

/// One word to sleep on, and the value at which to sleep.
struct FutexWait {
  const std::atomic<uint32_t>* word;
  uint32_t value;
};

/// At most this many words in one wait_any().
inline constexpr size_t kMaxFutexWaits = 128;

enum class Woken : uint8_t { kWoken, kTimeout, kInterrupted };

/// Sleeps until a word is woken or no longer has its value, or until the deadline. Spurious returns are possible: the
/// caller looks again. Where the kernel lacks futex_waitv it sleeps on the first word only, at most 5 ms at a time, so
/// that a caller that looks at all of them notices a change of any in bounded time.
Woken wait_any(std::span<const FutexWait> waits, Deadline deadline);

void wake_all(std::atomic<uint32_t>& word);

/// Whether the kernel has futex_waitv (Linux 5.16; some sandboxes refuse it), so that wait_any() sleeps on all words.
bool can_wait_for_many();

/// The low half of a 64-bit word, which is what the kernel compares (both supported architectures are little-endian).
inline std::atomic<uint32_t>& low_half(std::atomic<uint64_t>& word) {
  return *reinterpret_cast<std::atomic<uint32_t>*>(&word);
}
inline const std::atomic<uint32_t>& low_half(const std::atomic<uint64_t>& word) {
  return *reinterpret_cast<const std::atomic<uint32_t>*>(&word);
}

}  // namespace horo::transport
