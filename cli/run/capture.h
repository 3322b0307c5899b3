// Runs a program to its end and takes what it prints.
#pragma once

#include <string>
#include <vector>

#include "horo/base/deadline.h"
#include "horo/base/status.h"

namespace horo::cli::launch {

/// Its standard output; standard error is this process's. kUnavailable when it fails, kTimeout when it is killed at the
/// deadline.
Result<std::string> capture(const std::vector<std::string>& words, Deadline deadline);

}  // namespace horo::cli::launch
