// The thread of a process set that runs its batches, one after the other, in the order that was agreed.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "horo/base/status.h"
#include "horo/base/thread.h"
#include "horo/engine/buffer_pool.h"
#include "horo/engine/runner.h"
#include "horo/group/engine.h"

namespace horo::engine {

/// A group as a carrier.
class GroupCarrier : public Carrier {
 public:
  explicit GroupCarrier(std::shared_ptr<group::Group> group) : group_(std::move(group)) {}
  int size() const override { return group_->size(); }
  int member() const override { return group_->member(); }
  Status run(const collective::Operation& operation, const std::byte* input, std::byte* output,
             const device::Sequel& sequel) override {
    if (ways_.are_usual()) return group_->run(operation, input, output, Deadline::never(), may_spin_, sequel);
    return group_->run(tuned(operation), input, output, Deadline::never(), may_spin_, sequel);
  }
  std::optional<Status> start(const collective::Operation& operation, const std::byte* input, std::byte* output,
                              const device::Sequel& sequel, std::function<void(const Status&)> landed) override {
    return group_->start(tuned(operation), input, output, sequel, std::move(landed));
  }
  void give_up(const Status& why) override { group_->give_up(why); }
  std::string_view transport() const override { return group_->transport_name(); }
  std::string_view algorithm() const override { return group_->algorithm_name(); }
  /// Only a thread of the application may spin.
  void set_may_spin(bool may_spin) { may_spin_ = may_spin; }
  void set_ways(const Ways& ways) { ways_ = ways; }

 private:
  collective::Operation tuned(collective::Operation operation) const {
    operation.way = ways_.of(operation.kind);
    return operation;
  }

  const std::shared_ptr<group::Group> group_;
  bool may_spin_ = false;
  Ways ways_;
};

/// Thread-safe.
class Executor {
 public:
  /// What is no operation on data (a new process set) is handed to `special`, on the executor's thread.
  using Special = std::function<void(const Unit&, const Handle&)>;
  /// The set has ended, and all members have come so far.
  using Ended = std::function<void(const Status& why)>;

  Executor(group::Engine& engine, BufferPool& pool, std::shared_ptr<group::Group> group, Special special, Ended ended,
           const Observation& observation);
  ~Executor();

  /// Runs it later, after all that came before.
  Status submit(Work work);
  /// Runs it now, on the caller's thread, if nothing is under way and it is small; false otherwise.
  bool run_here(Work& work, bool may_spin);
  /// Everything that has not begun ends with `why`. What is under way must have been ended by the group.
  void stop(const Status& why);
  /// After stop(): until what is under way has ended. False at the deadline.
  bool wait_idle(Deadline deadline);

 private:
  void work(const std::stop_token& stop);
  void run(Work& work);
  /// Like run(), but what is on a device may be under way still when this returns.
  void start(Work work);
  void finish(Work& work, const std::vector<Status>& outcomes) const;
  void end(Work& work, const Status& why) const;

  group::Engine& engine_;
  const std::shared_ptr<group::Group> group_;
  GroupCarrier carrier_;
  PooledScratch scratch_;
  const Observation observation_;
  Runner runner_;
  const Special special_;
  const Ended ended_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable idle_;
  std::deque<Work> waiting_;
  bool busy_ = false;
  int flying_ = 0;  ///< Batches on devices that are under way.
  std::optional<Status> over_;
  Thread thread_;
};

}  // namespace horo::engine
