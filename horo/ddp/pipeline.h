// Runs exchanges one after the other, in the order in which they were handed in, without a thread of its own.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "horo/base/deadline.h"
#include "horo/base/status.h"
#include "horo/ddp/exchange.h"
#include "horo/group/group.h"

namespace horo::ddp {

/// How a wait ended. Not `ended`: the deadline came (kTimeout) or a signal handler ran (kInterrupted), and it can be
/// taken up again.
struct Waited {
  bool ended = false;
  Status status;
};

/// An exchange may have several operations, each made of the result of the one before. If two exchanges were under way
/// at once their operations would meet in an order that timing decides, and differently on each rank. So the next one
/// begins when the one before is done: on the caller's thread where none is under way, else on the group's own thread,
/// in the callback of the last operation.
///
/// Thread-safe. A failure ends everything that was handed in; later exchanges are dropped too, until reset().
class Pipeline {
 public:
  explicit Pipeline(group::Group& group);
  /// Gives the group up if an operation is under way, and waits for its end: nothing is touched afterwards.
  ~Pipeline();

  /// Numbers count from 1. `exchange` must live until its number is done or the pipeline is idle. Never waits.
  uint64_t submit(Exchange* exchange);

  /// Until exchange `number` is done: success, or the failure that ended it or one before.
  Waited wait(uint64_t number, Deadline deadline);
  /// Until nothing is under way.
  Waited wait_idle(Deadline deadline);
  bool idle() const;

  /// Forgets a failure. Only while idle.
  void reset();
  /// Of all exchanges so far.
  uint64_t sent_bytes() const { return state_->sent_bytes.load(std::memory_order_relaxed); }
  /// When the last exchange was done.
  Time last_end() const;

 private:
  /// What callbacks use; they may be the last to let go of it, on the group's thread. So it owns nothing but itself.
  struct State {
    std::mutex mutex;
    std::deque<Exchange*> queue;  ///< The first is under way.
    uint64_t submitted = 0;
    uint64_t done = 0;
    bool running = false;
    std::optional<Status> failure;
    Time last_end = {};
    std::atomic<uint64_t> sent_bytes{0};
    std::atomic<uint32_t> changes{0};  ///< What waiters sleep on.
  };
  static void run(const std::shared_ptr<State>& state, group::Group& group);
  static Result<bool> take_step(const std::shared_ptr<State>& state, group::Group& group, Exchange& exchange);
  static bool end_of_exchange(State& state);
  static void fail(State& state, const Status& why);
  static void changed(State& state);
  template <class Condition>
  Waited wait_until(Condition condition, Deadline deadline);

  group::Group& group_;
  const std::shared_ptr<State> state_;
};

}  // namespace horo::ddp
