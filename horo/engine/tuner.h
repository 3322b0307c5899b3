// Autotune: measures the traffic of a process set and finds settings that move it faster.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "horo/base/deadline.h"
#include "horo/engine/search.h"
#include "horo/engine/tuning.h"
#include "horo/group/group.h"

namespace horo::engine {

/// The values that may be tried; the one of `start` is among them, and alone where it is fixed.
struct TuningSpace {
  Tuning start;
  std::vector<uint64_t> thresholds;
  std::vector<Duration> windows;
  std::vector<collective::Way> allreduce, allgather;

  std::vector<Dimension> dimensions() const;
  Tuning at(const Point& point) const;
};

/// What the user has set stays.
struct Fixed {
  bool threshold = false;
  bool window = false;
};
TuningSpace tuning_space(const Tuning& start, const Fixed& fixed, const group::GroupOptions::Ways& ways);

struct TunerOptions {
  TuningSpace space;
  int warmup = 3;  ///< Samples that do not count.
  int steps = 10;  ///< Per sample.
  int trials = 20;
};

/// Bytes that moved in some steps.
struct Sample {
  uint64_t bytes = 0;
  uint64_t steps = 0;
  Duration time{};
  double bytes_per_us() const;
};

/// Cuts traffic into samples. A *step* has passed when a tensor comes again: names repeat from step to step. The first
/// step does not count; the tensor that ended it is the one by which the steps of the sample are counted, so that a
/// sample is as many whole steps.
class Sampler {
 public:
  explicit Sampler(int steps) : steps_(static_cast<uint64_t>(steps)) {}

  void ran(const std::string& key, uint64_t bytes);
  /// To be asked after each batch.
  std::optional<Sample> take(Time now);

 private:
  /// Where names never come again, so many of them are a sample.
  static constexpr size_t kMostNames = 1 << 14;

  void begin(Time now);
  uint64_t steps_passed() const;

  const uint64_t steps_;
  std::unordered_map<std::string, uint64_t> seen_;
  std::string most_seen_;
  uint64_t most_ = 0;
  /// Of the different tensors that have come. What a batch at either end of a sample holds is chance; this is not.
  uint64_t step_bytes_ = 0;
  // Of a sample that has begun:
  std::optional<Time> since_;
  std::string counted_;
};

/// One row of the log.
struct Measured {
  Duration since_start{};
  std::string_view phase;  ///< "warmup", "search", "proof", "done".
  int trial = 0;
  Tuning tuning;
  Sample sample;
};

/// Pure; at the root of a set.
class Tuner {
 public:
  explicit Tuner(TunerOptions options);

  /// A unit was let run.
  void ran(const std::string& key, uint64_t bytes) { sampler_.ran(key, bytes); }
  /// After the units of a batch: the settings from now on, if they change.
  std::optional<Tuning> step(Time now);
  bool done() const { return search_.done(); }
  double gain() const { return search_.gain(); }
  const Tuning& tuning() const { return tuning_; }
  /// What was measured since the last call.
  std::vector<Measured> take_measured();

 private:
  std::string_view phase_name() const;
  void note_done(Time now);

  const TunerOptions options_;
  Sampler sampler_;
  Search search_;
  Tuning tuning_;
  int warmed_up_ = 0;
  bool told_ = false;  ///< That it is done.
  std::optional<Time> started_;
  std::vector<Measured> measured_;
};

/// The log's first line, and the line of a row, without their ends.
std::string tuning_log_header();
std::string tuning_log_line(const Measured& measured);
/// "fusion threshold 16 MiB, gather window 500 us, ..."
std::string tuning_text(const Tuning& tuning);

}  // namespace horo::engine
