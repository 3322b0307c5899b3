#include "horo/group/bell.h"

#include <sched.h>

#include <array>

#include "horo/base/pause.h"
#include "horo/transport/futex.h"

namespace horo::group {

namespace {

constexpr int kSpinsPerLook = 32;  // Looks at the word between two looks at the clock.

}  // namespace

// Sequentially consistent on both sides: either the ringer sees the sleeper, or the sleeper sees the ring.
void BellWord::ring() {
  count.fetch_add(1, std::memory_order_seq_cst);
  if (driven.load(std::memory_order_seq_cst) != 0) return;
  if (sleepers.load(std::memory_order_seq_cst) != 0) transport::wake_all(count);
}

void Bell::ring_sleepers() {
  BellWord& word = this->word();
  word.count.fetch_add(1, std::memory_order_seq_cst);
  transport::wake_all(word.count);
}

void Bell::begin_driving() { word().driven.store(1, std::memory_order_seq_cst); }

// Sequentially consistent with ring(): a ringer that found the driver awake has counted before this look.
void Bell::end_driving(uint32_t seen) {
  BellWord& word = this->word();
  word.driven.store(0, std::memory_order_seq_cst);
  if (look() != seen && word.sleepers.load(std::memory_order_seq_cst) != 0) transport::wake_all(word.count);
}

void Bell::watch(std::vector<PeerLife> lives, std::function<void(int rank)> found_dead) {
  found_dead_ = std::move(found_dead);
  watched_.clear();
  if (!transport::can_wait_for_many()) return;  // The control thread notices deaths too, only not as fast.
  for (size_t i = 0; i < lives.size() && i < kMostLives; ++i) watched_.push_back(std::make_unique<Watched>(lives[i]));
}

bool Bell::wait_awake(uint32_t seen) const {
  const Time start = Clock::now();
  Time now = start;
  while (now - start < policy_.spin) {
    for (int i = 0; i < kSpinsPerLook; ++i) {
      if (look() != seen) return true;
      cpu_pause();
    }
    now = Clock::now();
  }
  while (now - start < policy_.awake) {
    sched_yield();
    if (look() != seen) return true;
    now = Clock::now();
  }
  return false;
}

bool Bell::nobody_died() {
  bool nobody = true;
  for (const auto& watched : watched_) {
    if (!watched->peer.life->ended() || watched->over.exchange(true, std::memory_order_relaxed)) continue;
    if (watched->peer.life->left()) continue;  // It said goodbye; its letters and its end come through the connection.
    found_dead_(watched->peer.rank);
    nobody = false;
  }
  return nobody;
}

bool Bell::wait(uint32_t seen, Deadline deadline, bool may_spin) {
  if (look() != seen) return true;
  if (may_spin && wait_awake(seen)) return true;
  BellWord& word = this->word();
  word.sleepers.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t driven = may_spin ? word.driven.exchange(0, std::memory_order_seq_cst) : 0;
  bool rung = false;
  bool interrupted = false;
  while (!(rung = look() != seen) && !interrupted && !deadline.expired()) {
    std::array<transport::FutexWait, kMostLives + 1> waits;
    size_t count = 0;
    waits[count++] = {&word.count, seen};
    for (const auto& watched : watched_) {
      if (watched->over.load(std::memory_order_relaxed)) continue;
      waits[count++] = {&watched->peer.life->futex(), watched->peer.life->value()};
    }
    if (!nobody_died()) continue;  // Looked at after the values were read, so that a death after it ends the sleep.
    interrupted = transport::wait_any({waits.data(), count}, deadline) == transport::Woken::kInterrupted;
  }
  if (driven != 0) word.driven.store(1, std::memory_order_seq_cst);
  word.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  return rung;
}

}  // namespace horo::group
