// `horo bench`: starts ranks of horo and of peers, measures them in turns, reports.
#pragma once

#include "cli/bench/options.h"

#include "horo/base/status.h"

namespace horo::bench {

/// The table goes to standard output, progress to standard error. An error when horo failed or gave a wrong result.
Status run_bench(const BenchOptions& options);

}  // namespace horo::bench
