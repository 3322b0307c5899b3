// horo timeline merge: the timelines of several ranks as one.
#pragma once

#include <string>
#include <vector>

#include "horo/base/status.h"

namespace horo::cli::timeline {

struct MergeSummary {
  size_t records = 0;
  size_t skipped = 0;              ///< Lines that are no record: the last one of a file that was cut off.
  std::vector<std::string> ranks;  ///< A sentence about each: how its clock was aligned.
};

/// Reads the files twice and keeps only what the alignment needs in memory.
Result<MergeSummary> merge(const std::string& out, const std::vector<std::string>& files);

}  // namespace horo::cli::timeline
