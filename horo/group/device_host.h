// What operations on devices need of their group.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "horo/base/deadline.h"
#include "horo/base/status.h"
#include "horo/collective/operation.h"

namespace horo::group {

/// An operation of the group on memory of the host.
using OnHost = std::function<Status(const collective::Operation&, const std::byte* in, std::byte* out)>;

/// Thread-safe.
class DeviceHost {
 public:
  virtual ~DeviceHost() = default;
  /// This member alone cannot go on: the group ends for all.
  virtual void give_up(const Status& why) = 0;
  /// Nothing can succeed any more.
  virtual bool is_over() const = 0;
  /// Why `what` has failed, of a group that is over; the reason may be on its way.
  virtual Status why_over(std::string_view what) = 0;
  /// Returns when the group is over, or after `span`.
  virtual void wait_over(Duration span) = 0;
  /// This member has waited for all others since then.
  virtual void note_waiting(Time since) = 0;
  virtual void warn(const std::string& words) = 0;
};

}  // namespace horo::group
