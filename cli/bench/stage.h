// Everything that a run of `horo bench` sets up before it measures, and takes down afterwards.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/bench/contender.h"
#include "cli/bench/network.h"
#include "cli/bench/options.h"
#include "cli/process.h"

namespace horo::bench {

/// One line that is overwritten on a terminal; a line each elsewhere only when asked.
class ProgressLine {
 public:
  explicit ProgressLine(bool verbose);
  ~ProgressLine() { clear(); }
  void show(const std::string& line) const;
  void clear() const;

 private:
  bool terminal_;
  bool verbose_;
};

/// Taken down in the opposite order: ranks, hosts, what is left on disk.
struct Stage {
  std::unique_ptr<cli::Janitor> janitor;
  std::unique_ptr<Network> network;
  std::vector<std::unique_ptr<Contender>> contenders;         ///< horo first, then its variants, then peers.
  std::vector<std::pair<std::string, std::string>> left_out;  ///< Peers that are absent or did not start, and why.
};

Result<Stage> set_stage(const BenchOptions& options, const ProgressLine& progress);

}  // namespace horo::bench
