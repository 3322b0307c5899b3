// One rank as its agent sees it, and what all ranks of a host have in common.
#pragma once

#include <string>

#include "cli/run/ending.h"
#include "cli/run/gpus.h"
#include "cli/run/message.h"
#include "cli/run/spawn.h"

#include "horo/net/key.h"

namespace horo::cli::launch {

struct Rank {
  int rank = 0;
  std::string command;
  std::string output_folder;  ///< RankOrder::output.
  Child child;
  net::UniqueFd output;  ///< Where its standard output and error are read. Non-blocking.
  net::UniqueFd error;
  net::UniqueFd result;  ///< What it hands back; invalid when nobody wants that.
  Ending ending;         ///< Of this one alone.
};

/// The value of OMP_NUM_THREADS for each of `ranks` ranks on a host with so many cores. At least 1.
std::string threads_per_rank(int cores, size_t ranks);

/// What the ranks of one host are started with.
struct RankTerms {
  std::vector<std::string> command;
  std::string folder;
  Environment environment;
  std::shared_ptr<const net::Key> key;
  std::vector<std::string> notes;  ///< What the user should know.
  bool wants_results = false;
  GpuTerms gpus;
  int slots = 1;   ///< Of this host.
  int input = -1;  ///< A file that all ranks read from its beginning; -1: their standard input is empty.

  static Result<RankTerms> of(const StartOrder& order);
  /// kNotFound: there is no such command.
  Result<Rank> start(const RankOrder& order) const;
  Result<net::UniqueFd> input_for_one() const;
  /// What one of them finds in its environment.
  Result<Environment> environment_of(const RankOrder& order) const;
  /// Sets OMP_NUM_THREADS, unless the user has.
  void share_cores(size_t ranks);

  /// The number under which a rank finds the key: high, so that scripts that use 3 to 9 do not lose it.
  static constexpr int kKeyDescriptor = 40;
  static constexpr int kResultDescriptor = 41;
};

}  // namespace horo::cli::launch
