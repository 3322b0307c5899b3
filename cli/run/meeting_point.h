// Where the ranks of a job meet: the launcher's store, at the address that the other hosts see this one under.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "horo/base/log.h"
#include "horo/net/address.h"
#include "horo/net/key.h"
#include "horo/rendezvous/tcp_store.h"

namespace horo::cli::launch {

/// What the launcher knows about the way to a host.
struct HostRoute {
  std::string name;       ///< As ssh takes it.
  bool is_here = false;   ///< It is this host.
  std::string connector;  ///< This host, as that one saw the ssh connection; may be empty.
  std::string acceptor;   ///< That host, likewise.
};

struct MeetingPlan {
  net::Address listen;            ///< Port 0, unless a port is wanted.
  std::vector<std::string> seen;  ///< By host: the IP address that it reaches this host at.
  /// By host: addresses of other hosts, from which it finds the interface that they reach it at.
  std::vector<std::vector<std::string>> peers;
};

/// `interfaces` (may be empty) overrides routing. `may_grow`: other hosts may come, so every interface is listened at.
/// kUnavailable when a host cannot be reached by any route.
Result<MeetingPlan> plan_meeting(const std::vector<HostRoute>& hosts, const std::vector<std::string>& interfaces,
                                 bool may_grow = false);

}  // namespace horo::cli::launch
