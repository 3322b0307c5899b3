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
#include "horo/engine/tuning_log.h"
#include "horo/group/engine.h"
#include "horo/group/post.h"

namespace horo::engine {

/// Who uses what: any thread hands in and waits; one thread at a time, the one that drives the loop, calls drive(); the
/// executor's thread runs batches.
class ProcessSet {
 public:
  /// Called by all members in the same order; waits for them.
  static Result<std::shared_ptr<ProcessSet>> open(group::Engine& engine, BufferPool& pool,
                                                  std::shared_ptr<group::Group> group,
                                                  const NegotiationOptions& options, Executor::Special special,
                                                  const Observation& observation,
                                                  Deadline deadline = Deadline::never());

  /// What the members are called: their ranks in the job as it is now.
  std::vector<int> names() const { return group_->names(); }
  /// The names of the group have changed. From any thread.
  void names_changed() { renamed_ = true; }
  int member() const { return group_->member(); }
  int size() const { return group_->size(); }
  group::Group& group() { return *group_; }

  /// What the calls ask for, if that is possible.
  Result<UnitPtr> describe(const std::vector<Call>& calls) const;
  /// See Queue::push(): for the first the engine's bell must be rung, or the thread waits for it.
  Result<size_t> submit(const Handle& submission);
  /// A rank uses one device in a set: the ranks put tensors together without knowing each other's devices.
  Status check_device(const std::vector<Call>& calls);
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
  /// Waits until nothing is under way. After close(), when the group is over, so that it ends by itself. False at the
  /// deadline.
  bool wait_idle(Deadline deadline) { return executor_.wait_idle(deadline); }
  /// close(), and the group ends with all that is under way.
  void end(const Status& why);
  /// What batches are run with now.
  Tuning tuning() const;
  /// Where what autotune measures is written. Before the first drive().
  void set_tuning_log(std::unique_ptr<TuningLog> log) { tuning_log_ = std::move(log); }
  size_t pending() const { return queue_.size(); }

 private:
  ProcessSet(group::Engine& engine, BufferPool& pool, std::shared_ptr<group::Group> group,
             const NegotiationOptions& options, Executor::Special special, const Observation& observation);
  void act(Output& output, Time now, bool here, bool may_spin);
  void run_batch(output::Run& batch, Time now, bool here, bool may_spin);
  bool lets_come(Time now);
  void announce_new(Time now);
  void tell_ready(Time now);
  void run(Work work, bool here, bool may_spin);
  void note_waiting(Time now);
  void note_tuned(const output::Tuned& tuned);
  void give_up(const Status& why, bool here, bool may_spin);

  group::Engine& engine_;
  const std::shared_ptr<group::Group> group_;
  std::unique_ptr<group::Post> post_;
  Queue queue_;
  const Observation observation_;
  std::atomic<int> waiters_{0};
  std::atomic<bool> over_{false};
  std::atomic<int> device_{-1};          ///< That tensors were handed in from; -1: none yet.
  std::atomic<bool> join_asked_{false};  ///< The driver is to tell the others.
  std::atomic<bool> renamed_{false};     ///< The driver is to look at the names.

  // The driver's.
  Negotiation negotiation_;
  Ways ways_;
  std::optional<Status> given_up_;  ///< Was told, and ends the set when all members have heard it.
  std::unique_ptr<TuningLog> tuning_log_;
  Negotiation::Counters counted_;  ///< What the metrics have been told.
  uint64_t batches_ = 0;
  std::optional<Time> waiting_since_;
  Time noted_;
  /// What is handed in now and will be announced together.
  struct Coming {
    Time since, look_at;
    size_t units = 0;  ///< At the last look.
  };
  std::optional<Coming> coming_;

  mutable std::mutex mutex_;
  Handle joining_;
  Tuning tuning_;
  Executor executor_;  ///< Last: its thread may use all the rest until it has ended.
};

}  // namespace horo::engine
