// `horo run`: one loop around the life of a job.
#pragma once

#include "cli/run/options.h"

namespace horo::cli::launch {

/// Runs the job to its end. The exit code: that of the first rank that failed (128 + signal for one that was killed),
/// 128
/// + signal when the launcher was told to end, 1 when something else went wrong.
int run_job(const RunOptions& options);

}  // namespace horo::cli::launch
