// What is told about a job that failed. Pure.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/run/life.h"

namespace horo::cli::launch {

/// "exit code 3", "signal 9 (Killed)"
std::string how(const RankEnd& end);

/// Lines for the user; none for a job that ended well. `tail` gives a rank's last lines.
std::vector<std::string> summary(const JobLife& life, const std::function<std::vector<std::string>(int rank)>& tail);

}  // namespace horo::cli::launch
