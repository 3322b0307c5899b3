// How long `horo run` takes to start and end programs.
#pragma once

#include "cli/bench/engine.h"

namespace horo::bench {

/// Adds its lines to the report.
Status add_launches(const BenchOptions& options, const ProgressLine& progress, EngineReport& report);

}  // namespace horo::bench
