// The file in which autotune writes what it measures (HORO_AUTOTUNE_LOG).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "horo/base/status.h"
#include "horo/engine/tuner.h"
#include "horo/net/fd.h"

namespace horo::engine {

/// CSV: tuning_log_header(), then one line per sample. Whole lines are written, so that the file can be read at any
/// time.
class TuningLog {
 public:
  /// Replaces the file.
  static Result<std::unique_ptr<TuningLog>> open(const std::string& path);
  Status write(const std::vector<Measured>& measured);

 private:
  TuningLog(net::UniqueFd file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}
  Status append(const std::string& lines);

  const net::UniqueFd file_;
  const std::string path_;
};

}  // namespace horo::engine
