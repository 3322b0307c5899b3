// How other hosts would be reached.
#include "cli/check/facts.h"
#include "cli/run/spawn.h"

#include "horo/base/text.h"
#include "horo/net/address.h"
#include "horo/net/route.h"

namespace horo::cli {

namespace {

constexpr const char* kNetwork = "network";

/// Addresses for documentation (RFC 5737, RFC 3849): nobody has them, and nothing is sent.
constexpr std::string_view kElsewhere[] = {"192.0.2.1", "2001:db8::1"};

/// This host's addresses that packets to other networks carry.
std::vector<std::string> routed() {
  std::vector<std::string> list;
  for (std::string_view literal : kElsewhere) {
    const auto to = net::Address::ip(literal, 9);
    if (!to.ok()) continue;
    const auto from = net::source_address(*to);
    if (from.ok() && !from->is_loopback()) list.push_back(net::ip_text(*from));
  }
  return list;
}

}  // namespace

Facts network_facts(const Environment& environment) {
  Facts facts;
  const auto all = net::interfaces();
  const std::vector<std::string> chosen = routed();
  if (!all.ok()) facts.push_back({kNetwork, "interfaces", "unknown", Verdict::kProblem, all.status().message()});
  for (const net::Interface& one : all.ok() ? *all : std::vector<net::Interface>()) {
    const std::string address = net::ip_text(one.address);
    const bool first = std::find(chosen.begin(), chosen.end(), address) != chosen.end();
    facts.push_back({kNetwork, "interface " + one.name, text(address, first ? ", taken to reach other networks" : "")});
  }
  if (chosen.empty()) {
    facts.push_back({kNetwork, "route to other hosts", "none", Verdict::kNote,
                     "jobs on this host work; to reach others, name an interface with --network-interfaces"});
  }
  const auto ssh = launch::find_program("ssh", environment.find("PATH").value_or(""));
  if (ssh.ok()) {
    facts.push_back({kNetwork, "ssh", *ssh});
  } else {
    facts.push_back(
        {kNetwork, "ssh", "not in the PATH", Verdict::kNote, "horo run needs it to start ranks on other hosts"});
  }
  return facts;
}

}  // namespace horo::cli
