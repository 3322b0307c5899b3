// How an agent ends what runs on its host: asks (SIGTERM), waits for the grace period, kills (SIGKILL) until nothing is
// left, gives up on what cannot be killed. Pure: signals and clock are the caller's.
#pragma once

#include <cstdint>

#include "horo/base/deadline.h"

namespace horo::cli::launch {

class Ending {
 public:
  enum class Step : uint8_t { kNothing, kAsk, kKill };

  /// The first time: asks. Later: may shorten what is left of the grace period.
  Step begin(Duration grace, Time now);
  /// To be called when deadline() has passed; harmless otherwise.
  Step step(Time now);
  /// A process ended: others may have come into its place, so the next step() kills again.
  void child_ended() { look_again_ = killing_; }

  bool has_begun() const { return begun_; }
  /// Some process, in an uninterruptible sleep say, survived SIGKILL for too long.
  bool gave_up() const { return gave_up_; }
  /// Whether `number` was sent to all.
  bool has_sent(int number) const;
  Deadline deadline() const;

  /// Between one round of SIGKILL and the next, for those that fork faster than we look.
  static constexpr Duration kRound = std::chrono::milliseconds(100);
  static constexpr Duration kHopeless = std::chrono::seconds(10);

 private:
  bool begun_ = false;
  bool killing_ = false;
  bool look_again_ = false;
  bool gave_up_ = false;
  Time kill_at_{};
  Time next_round_{};
};

}  // namespace horo::cli::launch
