// Ranks that run operations together, independently of other sets.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "horo/base/log.h"
#include "horo/engine/executor.h"
#include "horo/engine/negotiation.h"
#include "horo/engine/queue.h"
#include "horo/group/engine.h"
#include "horo/group/post.h"

namespace horo::engine {

/// Who uses what: any thread hands in and waits; one thread at a time, the one that drives the loop, calls drive(); the
/// executor's thread runs batches.
class ProcessSet {
 public:
  /// Called by all members in the same order; waits for them.
  static Result<std::shared_ptr<ProcessSet>> open(group::Engine& engine, std::shared_ptr<group::Group> group,
                                                  const NegotiationOptions& options, Executor::Special special,
                                                  Observer* observer);

  const std::vector<int>& ranks() const { return group_->ranks(); }
  int member() const { return group_->member(); }
  int size() const { return group_->size(); }
  group::Group& group() { return *group_; }

  /// The engine's bell must be rung afterwards.
  Status submit(const Handle& submission);
  /// One at a time; answered when everybody has joined.
  Status join(const Handle& joining);

  // By the driver:
  /// Takes what was handed in and what has come, and acts on it. `here`: small batches may run on this thread.
  void drive(Time now, bool here, bool may_spin);
  /// When drive() is to be called again although nothing rings.
  Deadline next(Time now) const;

  /// A thread begins (+1) or ceases (-1) to wait for a submission.
  void count_waiter(int change) { waiters_.fetch_add(change, std::memory_order_relaxed); }
  /// Everything that has not begun and all to come ends with `why`. From any thread.
  void close(const Status& why);
  /// close(), and the group ends with all that is under way.
  void end(const Status& why);
  Negotiation::Counters counters() const;
  size_t pending() const { return queue_.size(); }

 private:
  ProcessSet(group::Engine& engine, std::shared_ptr<group::Group> group, const NegotiationOptions& options,
             Executor::Special special, Observer* observer);
  void act(Output& output, bool here, bool may_spin);
  void run(Work work, bool here, bool may_spin);
  void note_waiting(Time now);

  group::Engine& engine_;
  const std::shared_ptr<group::Group> group_;
  std::unique_ptr<group::Post> post_;
  Queue queue_;
  Executor executor_;
  std::atomic<int> waiters_{0};
  std::atomic<bool> over_{false};
  std::atomic<bool> join_asked_{false};  ///< The driver is to tell the others.

  // The driver's.
  Negotiation negotiation_;
  std::optional<Time> waiting_since_;
  Time noted_;

  mutable std::mutex mutex_;
  Handle joining_;
  Negotiation::Counters counters_;
};

}  // namespace horo::engine
