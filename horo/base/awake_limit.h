// Limits of time that a process which is stopped, swapped out or asleep with its machine does not miss.
#pragma once

#include "horo/base/deadline.h"

namespace horo {

/// A span of time after which somebody is given up. Whoever waits looks at it every second; what passes beyond that
/// while it does not look is no time in which the other could have been heard, and does not count.
class AwakeLimit {
 public:
  AwakeLimit() = default;
  AwakeLimit(Duration span, Time now) : end_(now + span), looked_(now) {}

  Time next_look() const { return std::min(end_, looked_ + kLookAgain); }

  /// To be asked at next_look(), or as soon as possible after it.
  bool expired(Time now) {
    const Time due = next_look();
    if (now < due) return false;
    if (now - due > kLookAgain) end_ += now - due;
    looked_ = now;
    return now >= end_;
  }

 private:
  static constexpr auto kLookAgain = std::chrono::seconds(1);

  Time end_{};
  Time looked_{};
};

}  // namespace horo
