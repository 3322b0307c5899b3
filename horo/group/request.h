// An operation that was handed in and is, or will be, under way.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include "horo/base/deadline.h"
#include "horo/base/status.h"
#include "horo/collective/operation.h"

namespace horo::group {

/// Called once, on the group's own thread. May submit further operations; must not wait for one.
using Callback = std::function<void(const Status&)>;

/// Thread-safe. The memory it names must stay valid until it is done.
class Request {
 public:
  Request(collective::Operation operation, const std::byte* in, std::byte* out, Deadline deadline, Callback callback)
      : operation_(std::move(operation)), in_(in), out_(out), deadline_(deadline), callback_(std::move(callback)) {}

  bool done() const { return stage_.load(std::memory_order_acquire) == kEnded; }
  /// What a wait does when a signal handler has run on its thread.
  enum class OnSignal : uint8_t { kGoOn, kReturn };
  /// The outcome; kTimeout if it is not done by the deadline, kInterrupted after a signal where that was asked for. In
  /// both cases the operation goes on, and can be waited for again.
  Status wait(Deadline deadline, OnSignal on_signal = OnSignal::kGoOn);
  /// The same, but also ends, well, when all of the operation is in queues of its device. promised() has the rest then.
  Status wait_promised(Deadline deadline, OnSignal on_signal = OnSignal::kGoOn);
  /// Null before that, and where no such thing is told.
  device::EventHandle promised() const;

  const collective::Operation& operation() const { return operation_; }
  const std::byte* in() const { return in_; }
  std::byte* out() const { return out_; }
  Deadline deadline() const { return deadline_; }
  /// Of a message that was received: the member that sent it; -1 for all else. Before finish().
  void set_source(int member) { source_ = member; }
  int source() const { return done() ? source_ : -1; }
  /// Once at most, before finish().
  void promise(const device::EventHandle& result);
  void finish(const Status& status);

 private:
  const collective::Operation operation_;
  const std::byte* const in_;
  std::byte* const out_;
  const Deadline deadline_;
  const Callback callback_;

  enum Stage : uint32_t { kUnderWay, kPromised, kEnded };
  Status wait_for(Stage stage, Deadline deadline, OnSignal on_signal);
  void enter(Stage stage);

  /// What waiters sleep on: a futex and no condition variable, as only the former tells of signals.
  std::atomic<uint32_t> stage_{kUnderWay};
  std::atomic<uint32_t> sleepers_{0};
  device::EventHandle promised_;  ///< Written once, before kPromised.
  std::optional<Status> status_;  ///< Written once, before kEnded.
  int source_ = -1;               ///< The same.
};

using RequestHandle = std::shared_ptr<Request>;

}  // namespace horo::group
