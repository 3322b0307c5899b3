// What a reducer counts, and the times it takes.
#pragma once

#include <cstdint>

#include "horo/base/deadline.h"

namespace horo::ddp {

struct Times {
  Time forward_start = {}, backward_start = {}, communication_start = {}, backward_end = {}, communication_end = {};
};

struct Statistics {
  uint64_t iterations = 0, failures = 0;
  uint64_t buckets_reduced = 0, buckets_skipped = 0;
  uint64_t gradient_bytes = 0, sent_bytes = 0, unused_bytes = 0;
  bool rebuilt = false;
  uint64_t samples = 0;
  Times last;
  double mean_forward = 0, mean_backward = 0, mean_communication = 0, mean_overlap = 0;  ///< Seconds.
};

/// Times of the first iterations and then of every so many: whoever reads them wants means, not a trace.
class Sampler {
 public:
  static constexpr uint64_t kFirst = 10;
  void set_rate(uint64_t iterations) { rate_ = iterations; }
  /// `iteration` counts from 1.
  bool takes(uint64_t iteration) const { return iteration <= kFirst || iteration % rate_ == 0; }
  void add(const Times& times, Statistics& to) const {
    const auto seconds = [](Time from, Time until) { return std::chrono::duration<double>(until - from).count(); };
    ++to.samples;
    const auto mean = [&](double& so_far, double now) { so_far += (now - so_far) / static_cast<double>(to.samples); };
    to.last = times;
    if (times.forward_start != Time()) mean(to.mean_forward, seconds(times.forward_start, times.backward_start));
    mean(to.mean_backward, seconds(times.backward_start, times.backward_end));
    mean(to.mean_communication, seconds(times.communication_start, times.communication_end));
    mean(to.mean_overlap, seconds(times.communication_start, times.backward_end));
  }

 private:
  uint64_t rate_ = 100;
};

}  // namespace horo::ddp
