// What a rank's loop sleeps on: any thread of the process and any peer on the host can wake it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "horo/base/deadline.h"
#include "horo/transport/life.h"
#include "horo/transport/page.h"
#include "horo/transport/space.h"

namespace horo::group {

/// A count of rings, in the control region of a rank that shares memory, where its peers on the host ring it too.
///
/// Ringers add to `count` and look at `sleepers` and `driven`, which only threads of the owner write. So a ringer that
/// is killed between the two leaves nothing behind that could keep the next ringer from waking the owner, and the owner
/// rings its own bell when it learns that a rank is gone. Whatever a peer writes here costs the owner a look at its
/// rings.
struct alignas(transport::kCacheLine) BellWord {
  std::atomic<uint32_t> count{0};
  std::atomic<uint32_t> sleepers{0};
  std::atomic<uint32_t> driven{0};  ///< A thread of the owner is awake and looks: nobody need be woken.

  /// One atomic; a system call only when somebody sleeps.
  void ring();
};
static_assert(sizeof(BellWord) == transport::kCacheLine);

/// To wait for anything that rings, without losing a wake-up:
///
///   while (true) {
///     const uint32_t seen = bell.look();
///     if (everything that rings was looked at, and something was found) break;
///     bell.wait(seen, deadline, may_spin);
///   }
///
/// Thread-safe; several threads may wait.
class Bell {
 public:
  /// Without shared memory: a word of its own.
  Bell() : word_(&own_) {}
  /// With a word in shared memory, which must outlive the bell.
  explicit Bell(BellWord& word) : word_(&word) {}
  Bell(const Bell&) = delete;
  Bell& operator=(const Bell&) = delete;

  void ring() { word().ring(); }
  /// Wakes also those who sleep while a caller drives: for what the driver does not do in their place, such as to end.
  void ring_sleepers();
  uint32_t look() const { return word().count.load(std::memory_order_seq_cst); }

  /// Until the count is another than `seen`: true. False at the deadline, and when a signal handler of the program ran.
  /// `may_spin` is for threads of the caller, which wait awake at first, as set_policy() says; library threads sleep.
  bool wait(uint32_t seen, Deadline deadline, bool may_spin);

  /// A caller's thread does the work of the one that sleeps here, which stays asleep meanwhile. One at a time; from
  /// begin to end it waits with may_spin. `seen` is what it last looked at: what rang since then is left to the
  /// sleeper.
  void begin_driving();
  void end_driving(uint32_t seen);

  // Before the first wait:
  void set_policy(const transport::WaitPolicy& policy) { policy_ = policy; }
  /// Peers on this host whose death ends a sleep at once, and whom to tell. At most kMostLives are watched.
  static constexpr size_t kMostLives = 4;
  struct PeerLife {
    const transport::Life* life;
    int rank;
  };
  void watch(std::vector<PeerLife> lives, std::function<void(int rank)> found_dead);

  /// In a forked child, where the shared word is not mapped any more.
  void detach() { word_.store(&own_, std::memory_order_relaxed); }

 private:
  BellWord& word() const { return *word_.load(std::memory_order_relaxed); }
  bool wait_awake(uint32_t seen) const;
  /// False when the thread need not sleep: somebody was found dead.
  bool nobody_died();

  struct Watched {
    explicit Watched(PeerLife whom) : peer(whom) {}
    const PeerLife peer;
    std::atomic<bool> over{false};  ///< Told, or gone in order.
  };

  BellWord own_;
  std::atomic<BellWord*> word_;
  transport::WaitPolicy policy_;
  std::vector<std::unique_ptr<Watched>> watched_;
  std::function<void(int rank)> found_dead_;
};

}  // namespace horo::group
