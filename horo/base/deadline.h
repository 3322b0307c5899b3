// Points on the monotonic clock by which something must have happened.
#pragma once

#include <algorithm>
#include <chrono>

namespace horo {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;
using Duration = Clock::duration;

class Deadline {
 public:
  /// Never passes.
  Deadline() = default;
  explicit Deadline(Time at) : at_(at) {}
  static Deadline never() { return {}; }
  static Deadline after(Duration span) { return Deadline(Clock::now() + span); }
  /// A hundred years and more never pass: the clock's count of nanoseconds ends at three hundred.
  static Deadline after_seconds(double seconds) {
    if (seconds >= 3.2e9) return never();
    if (!(seconds > 0)) return after(Duration::zero());  // Not a number, too.
    return after(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds)));
  }

  bool is_never() const { return at_ == Time::max(); }
  bool expired(Time now = Clock::now()) const { return now >= at_; }
  /// Zero when passed; a very long time for never().
  Duration remaining(Time now = Clock::now()) const {
    return is_never() ? Duration::max() : std::max(at_ - now, Duration::zero());
  }
  /// For poll(2) and epoll_wait(2): rounded up so that a wait never ends early; -1 for never().
  int poll_milliseconds(Time now = Clock::now()) const {
    if (is_never()) return -1;
    auto left = std::chrono::ceil<std::chrono::milliseconds>(remaining(now)).count();
    return static_cast<int>(std::min<long long>(left, 1 << 30));
  }
  Time at() const { return at_; }
  Deadline earlier(Deadline other) const { return at_ <= other.at_ ? *this : other; }

 private:
  Time at_ = Time::max();
};

}  // namespace horo
