// What the measurements mean: figures per contender and size, as a table and as JSON (fields: docs/performance.md).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/bench/options.h"
#include "cli/bench/rounds.h"
#include "cli/machine.h"

namespace horo::bench {

/// The figures of one contender at one size, over the rounds that count.
struct Figures {
  double median_us = 0;  ///< Median of the rounds' medians.
  double p99_us = 0;     ///< Of all operations of these rounds.
  double minimum_us = 0;
  double back_to_back_us = 0;  ///< 0: not measured.
  double cpu_seconds_per_gib = 0;
  std::string transport;
  std::string algorithm;
  std::vector<double> round_medians_us;  ///< Of all rounds, the dropped ones too.
};
Figures figures(const SizeResult& size, const LaneResult& lane);

/// Bytes that must cross memory, all ranks together: each input read once, each output written once.
double floor_bytes(Op op, uint64_t bytes, int ranks);
/// What one byte of the tensor costs on the wire of the busiest rank: 2(N-1)/N for an allreduce.
double bus_factor(Op op, int ranks);

struct Report {
  cli::Machine machine;
  BenchOptions options;
  std::string transport;  ///< That horo ran on.
  std::vector<SizeResult> sizes;
  std::vector<std::pair<std::string, std::string>> left_out;  ///< Peers that are absent, and why.
};

/// 0 where the run measured no copy, or no stream.
double copy_floor_us(const Report& report, const SizeResult& size);
double stream_us(const Report& report, const SizeResult& size);

std::string to_table(const Report& report, bool colours);
std::string to_json(const Report& report);

}  // namespace horo::bench
