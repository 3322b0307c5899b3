#include "cli/run/ending.h"

#include <signal.h>

#include <algorithm>

namespace horo::cli::launch {

Ending::Step Ending::begin(Duration grace, Time now) {
  const Time at = now + grace;
  if (begun_) {
    kill_at_ = std::min(kill_at_, at);
    return step(now);
  }
  begun_ = true;
  kill_at_ = at;
  return grace == Duration::zero() ? step(now) : Step::kAsk;
}

Ending::Step Ending::step(Time now) {
  if (!begun_ || now < kill_at_ || gave_up_) return Step::kNothing;
  if (killing_ && !look_again_ && now < next_round_) return Step::kNothing;
  gave_up_ = now >= kill_at_ + kHopeless;
  killing_ = true;
  look_again_ = false;
  next_round_ = now + kRound;
  return Step::kKill;
}

bool Ending::has_sent(int number) const { return (number == SIGTERM && begun_) || (number == SIGKILL && killing_); }

Deadline Ending::deadline() const {
  if (!begun_ || gave_up_) return Deadline::never();
  return Deadline(killing_ ? next_round_ : kill_at_);
}

}  // namespace horo::cli::launch
