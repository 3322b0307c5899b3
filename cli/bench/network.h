// Hosts on one machine: network namespaces joined by virtual cables, removed at the end whatever happens.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/process.h"

#include "horo/base/status.h"
#include "horo/net/fd.h"

namespace horo::bench {

struct Host {
  std::string name_space;    ///< As `ip netns` knows it.
  std::string address;       ///< "10.77.0.1"
  net::UniqueFd descriptor;  ///< Of the namespace.
};

struct NetworkOptions {
  int hosts = 2;
  /// Bits per second out of each host, by a token bucket (tc tbf). Zero: as fast as it goes.
  uint64_t bits_per_second = 0;
};

class Network {
 public:
  /// Needs root and the programs ip and, for a rate, tc: kUnavailable otherwise.
  static Result<std::unique_ptr<Network>> make(const NetworkOptions& options, cli::Janitor& janitor);

  int hosts() const { return static_cast<int>(hosts_.size()); }
  const Host& host(int index) const { return hosts_[static_cast<size_t>(index)]; }
  /// Ranks fill one host after the other, evenly.
  const Host& host_of(int rank, int ranks) const { return host(rank * hosts() / ranks); }

 private:
  std::vector<Host> hosts_;
};

/// The arguments of tc that shape one end to a rate; the burst lets a timer tick's worth through.
std::vector<std::string> shaping(const std::string& name_space, uint64_t bits_per_second);

}  // namespace horo::bench
