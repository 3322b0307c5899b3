// Which launcher started this process, by the variables that it leaves in the environment. One table of launchers; what
// differs between them is what the rows say.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "horo/base/config.h"
#include "horo/base/status.h"

namespace horo::rendezvous {

/// Variables of which the first that is set counts.
using Alternatives = std::span<const std::string_view>;

/// One family of variables. Rank and size always come from the same one.
struct Launcher {
  std::string_view name;
  Alternatives rank;
  Alternatives size;
  Alternatives local_rank = {};
  Alternatives local_size = {};  ///< A number, or Slurm's "2(x3),1" for the hosts of the job in order.
  std::string_view host_index = {};
  std::string_view hosts = {};  ///< How many there are.
  /// At least one of these must be set too; empty: rank and size are evidence enough.
  Alternatives evidence = {};
  /// Those that are set, joined, tell this run from any other of this user at the same time.
  Alternatives run = {};
  Alternatives head = {};         ///< The host of rank 0, or a list of hosts that begins with it.
  std::string_view port = {};     ///< A port in use there; the ranks meet at the next one. Empty: made from the run.
  bool speaks_mpi = false;        ///< Its processes can be expected to find each other through MPI.
  std::string_view flavor = {};   ///< Of MPI, for whoever opens its library.
  std::string_view advice = {};   ///< What else helps where the key is missing.
  std::string_view must_be = {};  ///< A variable that must hold a number below `below`: steps of Slurm.
  uint64_t below = 0;
};

/// In the order in which they are believed.
std::span<const Launcher> launchers();

/// What a launcher says about this process.
struct LauncherPlace {
  const Launcher* launcher = nullptr;
  std::string variable;  ///< Where the rank was found.
  int rank = 0;
  int size = 1;
  int local_rank = -1;  ///< -1: not told.
  int local_size = -1;
  bool one_host = false;
  std::string run;    ///< Empty: nothing tells runs apart.
  std::string store;  ///< host:port where the ranks can meet. Empty: the environment names no host.
};

struct LauncherFinding {
  std::optional<LauncherPlace> place;
  std::string warning;  ///< Something looks like a job of several but is none; empty: nothing to say.
};

/// Nothing found is a finding too. kInvalidArgument names what is malformed or contradicts, and, where a family tells a
/// rank but no size, what to set.
Result<LauncherFinding> find_launcher(const Environment& environment);

/// The first host of "node[008-010,12],gpu3": node008.
std::string first_host(std::string_view list);

}  // namespace horo::rendezvous
