// How a thread waits for work of devices.
#pragma once

#include <sched.h>

#include <chrono>

#include "horo/base/deadline.h"
#include "horo/group/device_host.h"

namespace horo::group {

/// Work of a device is short: for a moment a thread looks for its end, giving way between two looks. Then it looks
/// every so often, and hears of a loss at once.
class DeviceWait {
 public:
  explicit DeviceWait(DeviceHost& host) : host_(host) {}
  Time since() const { return since_; }
  /// Between two looks. `for_others`: what does not come is theirs.
  void pause(bool for_others) {
    const Time now = Clock::now();
    if (for_others && now >= probe_at_) {
      probe_at_ = now + kProbeEvery;
      host_.note_waiting(since_);
    }
    if (now - since_ < kLook) {
      sched_yield();
    } else {
      host_.wait_over(kPause);
    }
  }

 private:
  static constexpr auto kLook = std::chrono::milliseconds(1);
  static constexpr auto kPause = std::chrono::microseconds(50);
  static constexpr auto kProbeEvery = std::chrono::milliseconds(100);
  DeviceHost& host_;
  const Time since_ = Clock::now();
  Time probe_at_ = since_ + kProbeEvery;
};

/// So many times for the end of what the fabric does, once for its errors: while a thread looks, what it looks at
/// delays the end.
inline constexpr int kLooksForOne = 16;
/// The fabric may notice a lost member before the group does, which knows who it is.
inline constexpr auto kReasonLimit = std::chrono::seconds(1);
/// What was aborted leaves the device.
inline constexpr auto kDrainLimit = std::chrono::seconds(2);

}  // namespace horo::group
