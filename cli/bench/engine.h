// `horo bench engine`: what negotiated execution and the launcher cost, beside the ordered path in the same run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/bench/options.h"
#include "cli/bench/stage.h"
#include "cli/machine.h"

namespace horo::bench {

/// One line of the report.
struct EngineFigure {
  std::string name;  ///< In the JSON file.
  std::string what;  ///< In the table.
  double value = 0;
  std::string unit;
  std::optional<double> aim = {};
  bool at_least = false;  ///< The aim is a lower limit.

  bool met() const { return !aim || (at_least ? value >= *aim : value <= *aim); }
};

struct EngineReport {
  std::vector<EngineFigure> figures;
  std::string transport;
  double taken_processors = 0;  ///< What something else had while the ranks worked and idled, on the average.
  bool disturbed = false;
  std::vector<std::pair<std::string, std::string>> left_out;
};

Result<EngineReport> measure_engine(const BenchOptions& options, const ProgressLine& progress);

std::string engine_table(const EngineReport& report, bool colours);
std::string engine_json(const BenchOptions& options, const cli::Machine& machine, const EngineReport& report);

}  // namespace horo::bench
