// How the clocks of several timelines fit together.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace horo::cli::timeline {

/// One operation that no rank leaves before all have entered it, as one rank saw it.
struct Meeting {
  double begin_us = 0, end_us = 0;
};
/// Process set, number of the batch, part of the batch: the same operation has the same key on all ranks.
using MeetingKey = std::tuple<int64_t, int64_t, int64_t>;

/// What the alignment needs to know of one rank's file.
struct Track {
  int rank = 0;
  std::string clock;                       ///< Ranks with the same one read the same clock.
  double start_us = 0;                     ///< Of the file, on that clock.
  double wall_us = 0;                      ///< Of the file, since 1970.
  std::map<MeetingKey, Meeting> meetings;  ///< Times count from the start of the file.
};

/// What is to be added to the times of a file so that they count on the clock of the first track.
class Shift {
 public:
  struct Knot {
    double at_us = 0;  ///< On the file's own clock, from the start of the file.
    double shift_us = 0;
  };
  explicit Shift(std::vector<Knot> knots) : knots_(std::move(knots)) {}
  /// Between two knots it changes evenly: clocks of two hosts do not run at exactly the same speed.
  double at(double time_us) const;

 private:
  std::vector<Knot> knots_;  ///< Rising; one at least.
};

struct Aligned {
  Shift shift;
  enum class By { kSameClock, kMeetings, kWallClock } by = By::kSameClock;
  size_t meetings = 0;
  /// Of kMeetings: the true shift lies no farther off, whatever the network did.
  double error_us = 0;
};

/// One per track. The first is the reference.
///
/// Two ranks that took part in one operation: neither left before the other had entered. So the difference of their
/// clocks lies between (their entry - our exit) and (their exit - our entry), for every operation. The estimate is the
/// median of the differences of the exits, over ten seconds at a time, cut to what all of these allow.
std::vector<Aligned> align(const std::vector<Track>& tracks);

}  // namespace horo::cli::timeline
