#include "horo/engine/tuner.h"

#include <algorithm>
#include <array>

#include "horo/base/text.h"
#include "horo/collective/algorithm.h"

namespace horo::engine {

namespace {

using std::chrono::microseconds;

constexpr std::array<uint64_t, 8> kThresholds = {64 << 10, 256 << 10, 1 << 20,   4 << 20,
                                                 16 << 20, 64 << 20,  128 << 20, 256 << 20};
constexpr std::array<int, 7> kWindows = {50, 200, 500, 1000, 2500, 5000, 10000};  ///< Microseconds.

template <class T>
void insert_sorted(std::vector<T>& values, const T& value) {
  const auto at = std::lower_bound(values.begin(), values.end(), value);
  if (at == values.end() || *at != value) values.insert(at, value);
}

template <class T>
Dimension dimension_of(const std::vector<T>& values, const T& start) {
  const auto at = std::find(values.begin(), values.end(), start);
  return {values.size(), static_cast<size_t>(at - values.begin())};
}

std::vector<collective::Way> with_usual(const std::vector<collective::Way>& others) {
  std::vector<collective::Way> all = {{}};
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

std::string_view algorithm_name(const collective::Way& way) {
  const size_t index = way.algorithm;
  return index == 0 || index > collective::registry().size() ? "auto" : collective::registry()[index - 1].name;
}

int64_t in_us(Duration time) { return std::chrono::duration_cast<microseconds>(time).count(); }

}  // namespace

std::vector<Dimension> TuningSpace::dimensions() const {
  return {dimension_of(allreduce, start.ways.allreduce), dimension_of(allgather, start.ways.allgather),
          dimension_of(thresholds, start.threshold), dimension_of(windows, start.window)};
}

Tuning TuningSpace::at(const Point& point) const {
  return {.threshold = thresholds[point[2]],
          .window = windows[point[3]],
          .ways = {.allreduce = allreduce[point[0]], .allgather = allgather[point[1]]}};
}

TuningSpace tuning_space(const Tuning& start, const Fixed& fixed, const group::GroupOptions::Ways& ways) {
  TuningSpace space{start, {}, {}, with_usual(ways.allreduce), with_usual(ways.allgather)};
  if (!fixed.threshold) space.thresholds.assign(kThresholds.begin(), kThresholds.end());
  for (int window : kWindows) {
    if (!fixed.window) space.windows.emplace_back(microseconds(window));
  }
  insert_sorted(space.thresholds, start.threshold);
  insert_sorted(space.windows, start.window);
  return space;
}

double Sample::bytes_per_us() const {
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  return static_cast<double>(bytes) * 1000 / static_cast<double>(std::max<int64_t>(ns, 1));
}

void Sampler::ran(const std::string& key, uint64_t bytes) {
  const uint64_t times = ++seen_[key];
  if (times == 1) step_bytes_ += bytes;
  if (times > most_) {
    most_ = times;
    most_seen_ = key;
  }
}

// Where the one that is counted has ceased to come, another will do.
uint64_t Sampler::steps_passed() const {
  const auto found = seen_.find(counted_);
  const uint64_t counted = found == seen_.end() ? 0 : found->second;
  return std::max(counted, most_ - std::min<uint64_t>(most_, 2));
}

void Sampler::begin(Time now) {
  since_ = now;
  counted_ = most_seen_;
  seen_.clear();
  most_ = step_bytes_ = 0;
}

std::optional<Sample> Sampler::take(Time now) {
  const bool endless = seen_.size() >= kMostNames;
  if (!since_) {
    if (most_ >= 2 || endless) begin(now);
    return std::nullopt;
  }
  if (steps_passed() < steps_ && !endless) return std::nullopt;
  const uint64_t steps = std::max<uint64_t>(steps_passed(), 1);
  const Sample sample{steps * step_bytes_, steps, now - *since_};
  begin(now);
  since_.reset();
  return sample;
}

Tuner::Tuner(TunerOptions options)
    : options_(std::move(options)),
      sampler_(options_.steps),
      search_({.dimensions = options_.space.dimensions(), .trials = options_.trials}),
      tuning_(options_.space.start) {}

std::string_view Tuner::phase_name() const {
  if (warmed_up_ < options_.warmup) return "warmup";
  return search_.phase() == Search::Phase::kProof ? "proof" : "search";
}

std::optional<Tuning> Tuner::step(Time now) {
  if (!started_) started_ = now;
  if (done()) {
    note_done(now);  // There was nothing to choose.
    return std::nullopt;
  }
  const std::optional<Sample> sample = sampler_.take(now);
  if (!sample) return std::nullopt;
  measured_.push_back({now - *started_, phase_name(), search_.trials(), tuning_, *sample});
  if (warmed_up_ < options_.warmup) {
    ++warmed_up_;
  } else {
    search_.add(sample->bytes_per_us(), static_cast<double>(sample->bytes) / static_cast<double>(sample->steps));
  }
  const Tuning next = warmed_up_ < options_.warmup ? tuning_ : options_.space.at(search_.point());
  const bool changes = next != tuning_;
  tuning_ = next;
  if (done()) note_done(now);
  return changes ? std::optional(tuning_) : std::nullopt;
}

void Tuner::note_done(Time now) {
  if (!std::exchange(told_, true)) measured_.push_back({now - *started_, "done", search_.trials(), tuning_, {}});
}

std::vector<Measured> Tuner::take_measured() { return std::exchange(measured_, {}); }

std::string tuning_log_header() {
  return "seconds,phase,trial,fusion_threshold_bytes,gather_window_us,hierarchical_allreduce,allreduce_algorithm,"
         "hierarchical_allgather,allgather_algorithm,bytes,steps,microseconds,bytes_per_us";
}

std::string tuning_log_line(const Measured& measured) {
  const Tuning& tuning = measured.tuning;
  const Ways& ways = tuning.ways;
  const double seconds = std::chrono::duration<double>(measured.since_start).count();
  const double score = measured.sample.bytes == 0 ? 0 : measured.sample.bytes_per_us();
  return text(seconds, ",", measured.phase, ",", measured.trial, ",", tuning.threshold, ",", in_us(tuning.window), ",",
              ways.allreduce.one_level ? 0 : 1, ",", algorithm_name(ways.allreduce), ",",
              ways.allgather.one_level ? 0 : 1, ",", algorithm_name(ways.allgather), ",", measured.sample.bytes, ",",
              measured.sample.steps, ",", in_us(measured.sample.time), ",", score);
}

std::string tuning_text(const Tuning& tuning) {
  const auto way_text = [](const collective::Way& way) {
    return text(way.one_level ? "over wires alone" : "as usual", way.algorithm == 0 ? "" : " by ",
                way.algorithm == 0 ? "" : algorithm_name(way));
  };
  return text("fusion threshold ", bytes_text(tuning.threshold), ", gather window ", in_us(tuning.window),
              " us, allreduce ", way_text(tuning.ways.allreduce), ", allgather ", way_text(tuning.ways.allgather));
}

}  // namespace horo::engine
