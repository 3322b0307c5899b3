#include "horo/net/route.h"

#include <sys/socket.h>

#include <cerrno>

#include "horo/base/text.h"
#include "horo/net/fd.h"
#include "horo/net/system_error.h"

namespace horo::net {

Result<Address> source_address(const Address& to) {
  const std::string what = text("finding the way to ", to.to_string());
  if (to.family() != Family::kIpv4 && to.family() != Family::kIpv6) {
    return Status(Code::kInvalidArgument, text(what, ": not an IP address"));
  }
  UniqueFd fd(::socket(to.family() == Family::kIpv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd) return system_error(what, errno);
  // Connecting a datagram socket sends nothing; any port but 0 will do.
  const Address target = to.port() == 0 ? to.with_port(9) : to;
  if (::connect(fd.get(), static_cast<const sockaddr*>(target.native()), target.native_size()) != 0) {
    return Status(Code::kUnavailable, system_error(what, errno).message());
  }
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0) return system_error(what, errno);
  HORO_ASSIGN(Address address, Address::from_native(&own, size));
  return address.with_port(0);
}

std::string ip_text(const Address& address) {
  std::string words = address.with_port(0).to_string();
  if (address.family() == Family::kIpv4) return words.substr(0, words.rfind(':'));
  return address.family() == Family::kIpv6 ? words.substr(1, words.rfind(']') - 1) : std::string();
}

}  // namespace horo::net
