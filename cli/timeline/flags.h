// The command line of `horo timeline`.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "horo/base/status.h"

namespace horo::cli::timeline {

struct Flags {
  std::string out;
  std::vector<std::string> files;

  void add_to(CLI::App& command);
};

/// Merges, and says how well the clocks fit.
Status run(const Flags& flags);

}  // namespace horo::cli::timeline
