#include "cli/run/meeting_point.h"

#include <algorithm>
#include <set>

#include "cli/run/interfaces.h"

#include "horo/base/text.h"
#include "horo/net/route.h"

namespace horo::cli::launch {

namespace {

Result<std::vector<net::Address>> addresses_of(const HostRoute& host) {
  if (const auto literal = net::Address::ip(host.acceptor, 0); literal.ok() && !literal->is_loopback()) {
    return std::vector<net::Address>{*literal};
  }
  const std::string name = bare_host(host.name);
  if (const auto literal = net::Address::ip(name, 0); literal.ok()) return std::vector<net::Address>{*literal};
  return net::resolve(name + ":0");
}

/// This host's address as `host` sees it: what its sshd says, unless that is another machine's (a jump host, address
/// translation); else what our routing table says.
Result<net::Address> seen_by(const HostRoute& host) {
  auto said = net::Address::ip(host.connector, 0);
  if (said.ok() && !said->is_loopback() && is_own_address(*said)) return said;
  HORO_ASSIGN(const auto addresses, addresses_of(host));
  for (const net::Address& to : addresses) {
    auto from = net::source_address(to);
    if (from.ok() && !from->is_loopback()) return from;
  }
  return Status(Code::kUnavailable, text("no route from here to host ", host.name,
                                         "; name the interface to use with --network-interfaces"));
}

Result<net::Address> one_for_all(const std::vector<net::Address>& seen) {
  std::set<std::string> different;
  for (const net::Address& address : seen) different.insert(net::ip_text(address));
  if (different.size() == 1) return seen.front();
  // Hosts come from several networks: every interface is listened at. The key keeps others out.
  const net::Family family = seen.front().family();
  const bool same = std::all_of(seen.begin(), seen.end(), [&](const net::Address& a) { return a.family() == family; });
  if (same) return net::Address::ip(family == net::Family::kIpv4 ? "0.0.0.0" : "::", 0);
  return Status(Code::kUnavailable,
                "some hosts are reached over IPv4 and some over IPv6; name one interface with --network-interfaces");
}

std::vector<std::string> peers_of(size_t host, const std::vector<HostRoute>& hosts,
                                  const std::vector<std::string>& seen) {
  std::vector<std::string> peers;
  for (size_t other = 0; other < hosts.size(); ++other) {
    if (other == host || (hosts[other].is_here && hosts[host].is_here)) continue;
    if (hosts[other].is_here) {
      peers.push_back(seen[host]);
      continue;
    }
    const auto addresses = addresses_of(hosts[other]);
    if (!addresses.ok()) continue;
    for (const net::Address& address : *addresses) peers.push_back(net::ip_text(address));
  }
  return peers;
}

}  // namespace

Result<MeetingPlan> plan_meeting(const std::vector<HostRoute>& hosts, const std::vector<std::string>& interfaces,
                                 bool may_grow) {
  MeetingPlan plan;
  std::vector<net::Address> seen;
  if (!interfaces.empty()) {
    HORO_ASSIGN(const net::Address chosen, first_interface(interfaces));
    seen.push_back(chosen);
  } else {
    for (const HostRoute& host : hosts) {
      if (host.is_here) continue;
      HORO_ASSIGN(net::Address address, seen_by(host));
      seen.push_back(address);
    }
  }
  if (seen.empty()) seen.push_back(net::Address::loopback());
  HORO_ASSIGN(plan.listen, one_for_all(seen));
  if (may_grow && interfaces.empty()) {
    HORO_ASSIGN(plan.listen, net::Address::ip(plan.listen.family() == net::Family::kIpv4 ? "0.0.0.0" : "::", 0));
  }
  size_t next = 0;
  for (const HostRoute& host : hosts) {
    const bool own = !host.is_here && seen.size() > 1;
    plan.seen.push_back(net::ip_text(seen[own ? next++ : 0]));
  }
  for (size_t host = 0; host < hosts.size(); ++host) plan.peers.push_back(peers_of(host, hosts, plan.seen));
  return plan;
}

}  // namespace horo::cli::launch
