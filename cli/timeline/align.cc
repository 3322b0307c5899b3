#include "cli/timeline/align.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace horo::cli::timeline {

namespace {

constexpr double kWindowMicroseconds = 10e6;

/// One operation as the ranks that share a clock saw it, in absolute times of that clock.
struct Seen {
  double last_begin = -std::numeric_limits<double>::infinity();
  double first_end = std::numeric_limits<double>::infinity();
};
using Sightings = std::map<MeetingKey, Seen>;

Sightings sightings_of(const std::vector<Track>& tracks, const std::string& clock) {
  Sightings all;
  for (const Track& track : tracks) {
    if (track.clock != clock) continue;
    for (const auto& [key, meeting] : track.meetings) {
      Seen& seen = all[key];
      seen.last_begin = std::max(seen.last_begin, track.start_us + meeting.begin_us);
      seen.first_end = std::min(seen.first_end, track.start_us + meeting.end_us);
    }
  }
  return all;
}

double median(std::vector<double> values) {
  auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Reference clock minus the other clock.
struct Window {
  std::vector<double> differences, times;
  double lowest = -std::numeric_limits<double>::infinity();
  double highest = std::numeric_limits<double>::infinity();

  void add(const Seen& reference, const Seen& other) {
    differences.push_back(reference.first_end - other.first_end);
    times.push_back(other.first_end);
    lowest = std::max(lowest, reference.last_begin - other.first_end);
    highest = std::min(highest, reference.first_end - other.last_begin);
  }
  /// A clock that was set, or files that do not belong together, can contradict themselves: then nothing is cut.
  double estimate() const {
    const double middle = median(differences);
    return lowest <= highest ? std::clamp(middle, lowest, highest) : middle;
  }
  double error() const { return std::max(highest - estimate(), estimate() - lowest); }
};

struct Difference {
  std::vector<Shift::Knot> knots;  ///< In absolute times of the other clock.
  size_t meetings = 0;
  double error_us = 0;
};

std::optional<Difference> difference_of(const Sightings& reference, const Sightings& other) {
  std::map<int64_t, Window> windows;
  Difference difference;
  for (const auto& [key, seen] : other) {
    auto found = reference.find(key);
    if (found == reference.end()) continue;
    windows[static_cast<int64_t>(seen.first_end / kWindowMicroseconds)].add(found->second, seen);
    ++difference.meetings;
  }
  if (windows.empty()) return std::nullopt;
  for (const auto& [number, window] : windows) {
    difference.knots.push_back({median(window.times), window.estimate()});
    difference.error_us = std::max(difference.error_us, window.error());
  }
  return difference;
}

}  // namespace

double Shift::at(double time_us) const {
  auto after = std::find_if(knots_.begin(), knots_.end(), [&](const Knot& knot) { return knot.at_us >= time_us; });
  if (after == knots_.begin()) return knots_.front().shift_us;
  if (after == knots_.end()) return knots_.back().shift_us;
  const Knot& before = *std::prev(after);
  const double part = (time_us - before.at_us) / (after->at_us - before.at_us);
  return before.shift_us + part * (after->shift_us - before.shift_us);
}

std::vector<Aligned> align(const std::vector<Track>& tracks) {
  std::vector<Aligned> all;
  if (tracks.empty()) return all;
  const Track& first = tracks.front();
  const Sightings reference = sightings_of(tracks, first.clock);
  std::map<std::string, std::optional<Difference>> differences;
  for (const Track& track : tracks) {
    if (track.clock == first.clock) {
      all.push_back({Shift({{0, track.start_us - first.start_us}}), Aligned::By::kSameClock, 0, 0});
      continue;
    }
    auto [known, fresh] = differences.try_emplace(track.clock);
    if (fresh) known->second = difference_of(reference, sightings_of(tracks, track.clock));
    const std::optional<Difference>& difference = known->second;
    if (!difference) {
      all.push_back({Shift({{0, track.wall_us - first.wall_us}}), Aligned::By::kWallClock, 0, 0});
      continue;
    }
    std::vector<Shift::Knot> knots;
    for (const Shift::Knot& knot : difference->knots) {
      knots.push_back({knot.at_us - track.start_us, knot.shift_us + track.start_us - first.start_us});
    }
    all.push_back({Shift(std::move(knots)), Aligned::By::kMeetings, difference->meetings, difference->error_us});
  }
  return all;
}

}  // namespace horo::cli::timeline
