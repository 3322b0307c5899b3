#include "horo/transport/space.h"

#include <sched.h>

#include <array>
#include <optional>

#include "horo/base/pause.h"
#include "horo/transport/futex.h"

namespace horo::transport {

namespace {

constexpr auto kProbeAfter = std::chrono::milliseconds(100);
constexpr int kSpinsPerLook = 32;  // Looks at the word between two looks at the clock, which costs about 20 ns.

std::optional<Waited> look(Word::Reading reading, uint64_t count) {
  if (reading.count() >= count) return Waited::kArrived;
  if (reading.revoked() || reading.evicted()) return Waited::kRevoked;
  return std::nullopt;
}

std::optional<Waited> stay_awake(const Word& word, uint64_t count, const WaitPolicy& policy, Time start) {
  Time now = start;
  while (now - start < policy.spin) {
    for (int i = 0; i < kSpinsPerLook; ++i) {
      if (auto seen = look(word.read(), count)) return seen;
      cpu_pause();
    }
    now = Clock::now();
  }
  while (now - start < policy.awake) {
    sched_yield();
    if (auto seen = look(word.read(), count)) return seen;
    now = Clock::now();
  }
  return std::nullopt;
}

// A dead member that nobody has evicted yet, or -1.
int find_dead(const Space& space) {
  for (int member = 0; member < space.size; ++member) {
    const Life* life = space.lives[static_cast<size_t>(member)];
    if (life != nullptr && life->ended() && !space.page.evicted(member)) return member;
  }
  return -1;
}

Woken sleep_on(const Space& space, const Word& word, uint32_t seen, Deadline deadline) {
  std::array<FutexWait, kMaxFutexWaits> waits;
  size_t count = 0;
  waits[count++] = {&low_half(word.futex()), seen};
  for (int member = 0; member < space.size && count < waits.size(); ++member) {
    const Life* life = space.lives[static_cast<size_t>(member)];
    if (life == nullptr || space.page.evicted(member)) continue;
    uint32_t value = life->value();
    if (life->ended()) return Woken::kWoken;
    waits[count++] = {&life->futex(), value};
  }
  return wait_any(std::span(waits.data(), count), deadline);
}

}  // namespace

Waited await_slowly(const Space& space, int member, Word& word, uint64_t count, Deadline deadline) {
  Time start = Clock::now();
  if (auto seen = stay_awake(word, count, space.policy, start)) return *seen;
  Time probe_at = start + kProbeAfter;
  while (true) {
    Word::Reading reading = word.announce_sleep();
    if (auto seen = look(reading, count)) return *seen;
    if (int dead = find_dead(space); dead >= 0) {
      space.page.revoke({dead});
      if (space.watcher != nullptr) space.watcher->found_dead(dead);
      continue;
    }
    Time now = Clock::now();
    if (deadline.expired(now)) return Waited::kTimeout;
    if (now >= probe_at) {
      probe_at = now + kProbeAfter;
      if (space.watcher != nullptr) space.watcher->waiting_for(member, start);
    }
    sleep_on(space, word, static_cast<uint32_t>(reading.bits()), deadline.earlier(Deadline(probe_at)));
  }
}

}  // namespace horo::transport
