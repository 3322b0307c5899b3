// Names and interfaces of hosts: the parts of address.h that ask the system.
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "horo/base/text.h"
#include "horo/net/address.h"
#include "horo/net/system_error.h"

namespace horo::net {
namespace {

Result<std::vector<Address>> ask_resolver(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  if (error != 0) {
    return Status(Code::kNotFound, text("host '", host, "' has no address: ", gai_strerror(error),
                                        "; check the name, or give an IP address"));
  }
  std::vector<Address> addresses;
  for (addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    auto address = Address::from_native(entry->ai_addr, entry->ai_addrlen);
    if (address.ok() && std::find(addresses.begin(), addresses.end(), *address) == addresses.end()) {
      addresses.push_back(*address);
    }
  }
  if (addresses.empty()) return Status(Code::kNotFound, text("host '", host, "' has no IP address"));
  return addresses;
}

/// Lower is better: a routable IPv4 address first, then IPv6, then addresses of one link, then loopback.
int cost(const Address& address) {
  return (address.is_loopback() ? 4 : 0) + (address.is_link_local() ? 2 : 0) +
         (address.family() == Family::kIpv6 ? 1 : 0);
}

}  // namespace

Result<std::vector<Address>> resolve(std::string_view host_and_port) {
  auto literal = Address::parse(host_and_port);
  if (literal.ok()) return std::vector<Address>{*literal};
  size_t colon = host_and_port.rfind(':');
  bool named = colon != host_and_port.npos && colon > 0 &&
               host_and_port.substr(0, colon).find_first_of(":[]/") == std::string_view::npos;
  if (!named) return literal.status();
  // Checks the port before a name server is bothered.
  HORO_ASSIGN(Address probe, Address::parse(text("127.0.0.1", host_and_port.substr(colon))));
  return ask_resolver(std::string(host_and_port.substr(0, colon)), text(probe.port()));
}

Result<std::vector<Interface>> interfaces() {
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return system_error("listing the network interfaces", errno);
  std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(found, freeifaddrs);
  std::vector<Interface> list;
  for (ifaddrs* entry = found; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    size_t size = entry->ifa_addr->sa_family == AF_INET    ? sizeof(sockaddr_in)
                  : entry->ifa_addr->sa_family == AF_INET6 ? sizeof(sockaddr_in6)
                                                           : 0;
    if (size == 0) continue;
    HORO_ASSIGN(Address address, Address::from_native(entry->ifa_addr, size));
    list.push_back({entry->ifa_name, address});
  }
  return list;
}

Result<Address> choose_interface(const std::vector<Interface>& list, std::string_view name) {
  const Interface* best = nullptr;
  std::string names;
  for (const Interface& entry : list) {
    if (names.find(entry.name) == names.npos) names += (names.empty() ? "" : ", ") + entry.name;
    if (!name.empty() && entry.name != name) continue;
    if (best == nullptr || cost(entry.address) < cost(best->address)) best = &entry;
  }
  if (best != nullptr) return best->address.with_port(0);
  return Status(Code::kNotFound, text("no interface ", name.empty() ? "" : text("'", name, "' "),
                                      "with an IP address is up here; there are: ", names.empty() ? "none" : names));
}

Result<Address> choose_interface(std::string_view name) {
  HORO_ASSIGN(auto list, interfaces());
  return choose_interface(list, name);
}

}  // namespace horo::net
