// Which ranks run on which hosts: -H a:2,b:4, a hostfile, or what a discovery script printed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "horo/base/status.h"

namespace horo::cli::launch {

struct Host {
  std::string name;  ///< As ssh takes it, without brackets: "node1", "user@node1", "fd00::1".
  int slots = 1;

  friend bool operator==(const Host&, const Host&) = default;
};

/// "a:2,b:4", "localhost", "user@a:2", "[fd00::1]:2". A host without a number has one slot; one that appears twice has
/// the sum. kInvalidArgument names the piece that is wrong.
Result<std::vector<Host>> parse_hosts(std::string_view list);

/// Lines "host slots=4", "host:4" or "host"; "#" begins a comment. `path` is for messages: "hosts.txt:3: ...".
Result<std::vector<Host>> parse_hostfile(std::string_view contents, std::string_view path);

/// What a discovery script printed: "host:4" or "host", one per line; a host without a number has `slots_per_host`.
Result<std::vector<Host>> parse_discovered(std::string_view printed, std::string_view script, int slots_per_host);

/// Where one rank runs. Ranks with equal local rank, one per host, form the "cross" dimension.
struct RankPlace {
  int rank = 0;
  size_t host = 0;  ///< Index in Placement::hosts.
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;
  int cross_size = 1;

  friend bool operator==(const RankPlace&, const RankPlace&) = default;
};

struct Placement {
  std::vector<Host> hosts;  ///< Those that have ranks; `slots` is how many.
  std::vector<RankPlace> ranks;

  std::vector<int> ranks_of(size_t host) const;
};

/// Fills the hosts in their order. kInvalidArgument when they have too few slots.
Result<Placement> place_ranks(const std::vector<Host>& hosts, int ranks);

}  // namespace horo::cli::launch
