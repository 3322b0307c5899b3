#include "horo/transport/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <climits>

#include "horo/base/check.h"

namespace horo::transport {

namespace {

static_assert(std::endian::native == std::endian::little, "the futex word is the low half of a 64-bit word");

// From linux/futex.h of 5.16 and later; older headers lack it.
struct WaitvEntry {
  uint64_t value;
  uint64_t address;
  uint32_t flags;
  uint32_t reserved;
};
constexpr uint32_t kWaitv32Bits = 2;
constexpr long kWaitvSyscall = 449;  // The same number on every architecture.

constexpr auto kFallbackSlice = std::chrono::milliseconds(5);

timespec to_timespec(Time time) {
  auto since = time.time_since_epoch();
  auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since);
  return {static_cast<time_t>(seconds.count()), static_cast<long>((since - seconds).count())};
}

Woken outcome(long result, int error) {
  if (result >= 0) return Woken::kWoken;
  if (error == ETIMEDOUT) return Woken::kTimeout;
  return error == EINTR ? Woken::kInterrupted : Woken::kWoken;  // EAGAIN: the value had changed already.
}

// steady_clock is CLOCK_MONOTONIC with libstdc++, which both calls below take as absolute time.
Woken wait_one(const FutexWait& wait, Deadline deadline) {
  timespec at = to_timespec(deadline.at());
  long result = syscall(SYS_futex, wait.word, FUTEX_WAIT_BITSET, wait.value, deadline.is_never() ? nullptr : &at,
                        nullptr, FUTEX_BITSET_MATCH_ANY);
  return outcome(result, errno);
}

Woken wait_first_briefly(const FutexWait& first, Deadline deadline) {
  Deadline slice = Deadline::after(kFallbackSlice);
  if (deadline.at() <= slice.at()) return wait_one(first, deadline);
  Woken woken = wait_one(first, slice);
  return woken == Woken::kTimeout ? Woken::kWoken : woken;
}

}  // namespace

Woken wait_any(std::span<const FutexWait> waits, Deadline deadline) {
  HORO_CHECK(!waits.empty() && waits.size() <= kMaxFutexWaits, "wait_any takes 1 to 128 words");
  if (waits.size() == 1) return wait_one(waits[0], deadline);
  std::array<WaitvEntry, kMaxFutexWaits> entries;
  for (size_t i = 0; i < waits.size(); ++i) {
    entries[i] = {waits[i].value, reinterpret_cast<uint64_t>(waits[i].word), kWaitv32Bits, 0};
  }
  timespec at = to_timespec(deadline.at());
  long result = syscall(kWaitvSyscall, entries.data(), static_cast<unsigned>(waits.size()), 0u,
                        deadline.is_never() ? nullptr : &at, CLOCK_MONOTONIC);
  if (result < 0 && (errno == ENOSYS || errno == EPERM)) return wait_first_briefly(waits[0], deadline);
  return outcome(result, errno);
}

void wake_all(std::atomic<uint32_t>& word) { syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

bool can_wait_for_many() {
  static const bool kCan = [] {
    const long result = syscall(kWaitvSyscall, nullptr, 0u, 0u, nullptr, CLOCK_MONOTONIC);
    return result >= 0 || (errno != ENOSYS && errno != EPERM);  // EINVAL: known, and no words were given.
  }();
  return kCan;
}

}  // namespace horo::transport
