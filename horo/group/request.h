// An operation that was handed in and is, or will be, under way.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
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

  bool done() const {
    std::lock_guard lock(mutex_);
    return status_.has_value();
  }
  /// The outcome, or kTimeout if it is not done by the deadline (it goes on nevertheless).
  Status wait(Deadline deadline);

  const collective::Operation& operation() const { return operation_; }
  const std::byte* in() const { return in_; }
  std::byte* out() const { return out_; }
  Deadline deadline() const { return deadline_; }
  void finish(const Status& status);

 private:
  const collective::Operation operation_;
  const std::byte* const in_;
  std::byte* const out_;
  const Deadline deadline_;
  const Callback callback_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Status> status_;
};

using RequestHandle = std::shared_ptr<Request>;

}  // namespace horo::group
