// `horo bench wait`: what waiting costs. Processor time of a rank while a peer is late, and while nobody calls at all.
#pragma once

#include <string>
#include <vector>

#include "cli/bench/options.h"
#include "cli/bench/stage.h"
#include "cli/machine.h"

namespace horo::bench {

/// One duration of one kind, for one contender.
struct WaitFigure {
  Op kind = Op::kWait;  ///< Or kIdle.
  std::string name;
  double late_us = 0;
  double cpu_us = 0;      ///< Of the rank that used most, per wait; median over all waits of all rounds.
  std::string transport;  ///< "shm"
};

Result<std::vector<WaitFigure>> measure_waits(const BenchOptions& options, Stage& stage, const ProgressLine& progress);

std::string waits_table(const std::vector<WaitFigure>& figures, bool colours);
std::string waits_json(const BenchOptions& options, const cli::Machine& machine,
                       const std::vector<WaitFigure>& figures);

}  // namespace horo::bench
