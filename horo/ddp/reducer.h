// Reduces the gradients of a model in buckets, while the backward pass still runs.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "horo/base/deadline.h"
#include "horo/base/status.h"
#include "horo/ddp/agreement.h"
#include "horo/ddp/buckets.h"
#include "horo/ddp/hooks.h"
#include "horo/ddp/iteration.h"
#include "horo/ddp/pipeline.h"
#include "horo/ddp/statistics.h"
#include "horo/group/group.h"

namespace horo::ddp {

struct ReducerOptions {
  std::vector<Parameter> parameters;
  std::vector<uint64_t> first_limits;    ///< None: one bucket for each dtype and device.
  std::vector<uint64_t> rebuilt_limits;  ///< None: no rebuild.
  IterationRules rules;
  bool views = false;
  bool small_last = false;
};

/// The values are part of the C ABI (api/ddp.h).
enum class Outcome : uint8_t { kReduced = 0, kUntouched = 1, kWithoutPlace = 2, kByCaller = 3 };

struct Events {
  bool take = false;          ///< A bucket waits for the caller.
  bool all_launched = false;  ///< By this call.
  bool taken = false;         ///< The gradient lies in its bucket now.
};

/// Thread-safe; api/ddp.h has the order of the calls.
///
/// Who owns a bucket's memory: the caller's threads while gradients are packed, under the reducer's lock; the pipeline
/// from the hand-in on, which is this thread for the first step and the group's own thread afterwards; the caller again
/// once finish() has seen the end. A bucket by_caller stays the caller's. The pipeline is idle whenever buckets are
/// rebuilt, hooks changed, or the reducer destroyed.
class Reducer {
 public:
  /// Called by all members; waits for them. The group is the reducer's alone while an iteration is under way.
  static Result<std::unique_ptr<Reducer>> create(std::shared_ptr<group::Group> group, Allocate allocate,
                                                 ReducerOptions options);
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;
  /// Gives the group up where an operation is under way.
  ~Reducer() = default;

  const std::vector<Parameter>& parameters() const { return options_.parameters; }
  /// Until the next rebuild.
  const Layout& layout() const { return built_->layout; }
  Memory memory(size_t bucket) const { return built_->memory[bucket]; }

  /// True when the buckets were rebuilt.
  Result<bool> prepare_forward();
  /// `gradients`: what the unused hold; empty: none holds any.
  Status prepare_backward(bool synchronize, std::span<const size_t> unused,
                          std::span<const std::byte* const> gradients);
  Result<Events> ready(size_t parameter, const std::byte* gradient);
  Result<Events> ready_all();
  Result<Events> end_backward();
  bool all_launched() const;
  bool under_way() const;

  Result<std::optional<size_t>> take();
  Result<Events> launched(size_t bucket);
  Status deliver(size_t bucket, const std::byte* result);
  Status fail(const Status& why);

  /// `outputs` and `outcomes`: one for each parameter, or none.
  Status finish(Deadline deadline, std::span<std::byte* const> outputs, std::span<Outcome> outcomes);

  Status set_hook(const HookOptions& options);
  Status set_divisor(double divisor);
  Status set_sample_rate(uint64_t iterations);
  Status set_static_graph();
  Statistics statistics() const;
  Indices ready_order() const;

 private:
  /// What a layout needs; the exchanges point to the rest.
  struct Built {
    Layout layout;
    std::vector<Memory> memory;  ///< Null for sparse buckets.
    std::unique_ptr<Hook> hook;
    std::vector<std::unique_ptr<BucketExchange>> exchanges;  ///< Null for buckets of the caller.
  };

  Reducer(std::shared_ptr<group::Group> group, Allocate allocate, ReducerOptions options);
  Result<std::unique_ptr<Built>> build(const std::vector<Indices>& groups) const;
  Status make_exchanges(Built& built, Hook& hook) const;
  std::vector<bool> by_caller(const Layout& layout) const;
  Result<bool> rebuild();
  std::string named(size_t parameter) const;
  std::string named_bucket(size_t bucket) const;
  Status check_parameter(size_t parameter) const;
  Status check_idle(const char* what) const;

  // Under the lock.
  Status wrong(size_t parameter, Iteration::Wrong wrong);
  void pack(const Indices& complete);
  Events launch();
  void hand_in(size_t bucket);
  void hand_in_map();
  bool needs_agreement() const;
  std::optional<Status> find_fault() const;
  Status end_unfinished();
  Waited collect(Deadline deadline, std::span<std::byte* const> outputs);
  Waited await_map(Deadline deadline);
  Waited await_agreement(Deadline deadline);
  void copy_out(size_t bucket, std::span<std::byte* const> outputs);
  void succeed(std::span<std::byte* const> outputs, std::span<Outcome> outcomes);
  Status settle(Deadline deadline);
  Status end_failed(Status why);
  void fail_here(const Status& why);
  Outcome outcome_of(size_t parameter, std::span<std::byte* const> outputs) const;
  std::byte* place_of(size_t parameter, std::span<std::byte* const> outputs) const;

  const ReducerOptions options_;
  const std::shared_ptr<group::Group> group_;
  const Allocate allocate_;

  mutable std::mutex mutex_;
  Iteration iteration_;
  HookOptions hook_options_;
  double divisor_ = 0;
  bool rebuilt_ = false;
  Indices last_order_;

  // Of this iteration:
  std::vector<const std::byte*> gradients_;  ///< Where they are; null: there is none.
  std::vector<uint64_t> tickets_;            ///< Of each bucket in the pipeline; 0: it is not there.
  std::vector<bool> delivered_;              ///< By the caller.
  bool taken_ = false;                       ///< The bucket that iteration_ has out is with the caller.
  bool announced_ = false;                   ///< That all are launched.
  size_t copied_ = 0;                        ///< So many buckets were copied out.
  std::vector<int32_t> map_;
  std::unique_ptr<SingleExchange> map_exchange_;
  uint64_t map_ticket_ = 0;
  int32_t nothing_wrong_ = 0;
  std::unique_ptr<SingleExchange> agreement_;
  uint64_t agreement_ticket_ = 0;
  std::optional<Status> failure_;
  bool failed_here_ = false;  ///< This rank knows why; else an operation told it.
  std::unique_ptr<Reasons> reasons_;
  uint64_t reasons_ticket_ = 0;
  Round round_;

  Times times_;
  Sampler sampler_;
  Statistics statistics_;

  std::unique_ptr<Built> built_;
  Pipeline pipeline_;  ///< Ends before anything that exchanges use.
};

}  // namespace horo::ddp
