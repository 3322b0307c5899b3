#include "cli/run/interfaces.h"

#include <algorithm>

#include "horo/base/system.h"
#include "horo/base/text.h"
#include "horo/net/route.h"

namespace horo::cli::launch {

namespace {

std::string interface_list(const std::vector<net::Interface>& list) {
  std::string words;
  for (const net::Interface& one : list) {
    words += text(words.empty() ? "" : ", ", one.name, " (", net::ip_text(one.address), ")");
  }
  return words.empty() ? "none" : words;
}

bool has_address(const std::vector<net::Interface>& list, const net::Address& address) {
  const std::string wanted = net::ip_text(address);
  return std::any_of(list.begin(), list.end(),
                     [&](const net::Interface& one) { return net::ip_text(one.address) == wanted; });
}

}  // namespace

Result<net::Address> first_interface(const std::vector<std::string>& wanted) {
  HORO_ASSIGN(const auto list, net::interfaces());
  std::string names;
  for (const std::string& one : wanted) {
    names += text(names.empty() ? "" : ", ", one);
    auto literal = net::Address::ip(one, 0);
    if (literal.ok() && has_address(list, *literal)) return literal;
    if (literal.ok()) continue;
    if (auto found = net::choose_interface(list, one); found.ok()) return found;
  }
  return Status(Code::kNotFound, text("--network-interfaces ", names, ": none of them is on host ", host_name(),
                                      ", which has ", interface_list(list)));
}

Result<net::Address> address_towards(const std::vector<std::string>& peers) {
  if (peers.empty()) return net::Address::loopback();
  for (const std::string& peer : peers) {
    const auto to = net::Address::ip(peer, 0);
    if (!to.ok()) continue;
    auto from = net::source_address(*to);
    if (from.ok() && !from->is_loopback()) return from;
  }
  return net::choose_interface("");
}

net::Address address_for_others() {
  // Kept for documents (RFC 5737, RFC 3849): no host has them, and nothing is sent there.
  for (const char* elsewhere : {"192.0.2.1", "2001:db8::1"}) {
    const auto to = net::Address::ip(elsewhere, 0);
    if (!to.ok()) continue;
    const auto from = net::source_address(*to);
    if (from.ok() && !from->is_loopback()) return *from;
  }
  return net::Address::loopback();
}

bool is_own_address(const net::Address& address) {
  if (address.is_loopback()) return true;
  const auto list = net::interfaces();
  return list.ok() && has_address(*list, address);
}

std::string bare_host(const std::string& host) { return host.substr(host.find('@') + 1); }

bool is_this_host(const std::string& host) {
  const std::string name = bare_host(host);
  if (name == "localhost") return true;
  // Another user of this host is reached through ssh.
  if (name != host) return false;
  if (const auto literal = net::Address::ip(name, 0); literal.ok()) return is_own_address(*literal);
  if (name == host_name()) return true;
  const auto found = net::resolve(name + ":0");
  return found.ok() && std::any_of(found->begin(), found->end(), is_own_address);
}

}  // namespace horo::cli::launch
