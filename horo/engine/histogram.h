// Times, counted in buckets of fixed bounds.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "horo/base/deadline.h"

namespace horo::engine {

/// Thread-safe and without locks. Bucket k counts what took at most 2^k microseconds and more than bucket k-1 does; the
/// last one counts the rest.
class Histogram {
 public:
  static constexpr size_t kBounds = 27;  ///< 1 us to 67 s.
  static constexpr double bound_seconds(size_t bucket) { return static_cast<double>(uint64_t{1} << bucket) * 1e-6; }

  struct Values {
    std::array<uint64_t, kBounds + 1> counts{};
    double sum_seconds = 0;
    uint64_t count() const { return std::accumulate(counts.begin(), counts.end(), uint64_t{0}); }
  };

  void add(Duration span) {
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(std::max(span, Duration::zero())).count();
    counts_[bucket_of(static_cast<uint64_t>(ns))].fetch_add(1, std::memory_order_relaxed);
    sum_ns_.fetch_add(static_cast<uint64_t>(ns), std::memory_order_relaxed);
  }
  Values values() const {
    Values values;
    for (size_t i = 0; i < counts_.size(); ++i) values.counts[i] = counts_[i].load(std::memory_order_relaxed);
    values.sum_seconds = static_cast<double>(sum_ns_.load(std::memory_order_relaxed)) * 1e-9;
    return values;
  }

 private:
  static size_t bucket_of(uint64_t ns) {
    const uint64_t us = (ns + 999) / 1000;  // Rounded up: a bound belongs to its bucket.
    return us <= 1 ? 0 : std::min<size_t>(static_cast<size_t>(std::bit_width(us - 1)), kBounds);
  }
  std::array<std::atomic<uint64_t>, kBounds + 1> counts_{};
  std::atomic<uint64_t> sum_ns_{0};
};

}  // namespace horo::engine
