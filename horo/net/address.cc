#include "horo/net/address.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <charconv>
#include <cstring>

#include "horo/base/text.h"

namespace horo::net {
namespace {

constexpr std::string_view kUnixPrefix = "unix:";

Status not_an_address(std::string_view given, std::string_view why) {
  return {Code::kInvalidArgument, text("'", given, "' is not an address: ", why,
                                       "; write 127.0.0.1:5000, [::1]:5000, unix:@name or unix:/path")};
}

Result<uint16_t> parse_port(std::string_view given, std::string_view digits) {
  uint16_t port = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size()) {
    return not_an_address(given, text("the port '", digits, "' is not a number from 0 to 65535"));
  }
  return port;
}

/// A copy of the native form; sockaddr types may not be read through other pointers.
template <class Native>
Native native_as(const Address& address) {
  Native native{};
  std::memcpy(&native, address.native(), std::min<size_t>(sizeof native, address.native_size()));
  return native;
}

template <class Native>
Address address_of(const Native& native) {
  return Address::from_native(&native, sizeof native).value();
}

Result<Address> unix_address(std::string_view name, bool abstract) {
  sockaddr_un native{};
  native.sun_family = AF_UNIX;
  size_t room = sizeof native.sun_path - 1;
  if (name.empty() || name.size() > room) {
    return Status(Code::kInvalidArgument, text("a Unix socket's name has 1 to ", room, " bytes, not ", name.size()));
  }
  if (!abstract && name.find('\0') != name.npos) {
    return Status(Code::kInvalidArgument, "the path of a Unix socket contains a zero byte");
  }
  std::memcpy(native.sun_path + (abstract ? 1 : 0), name.data(), name.size());
  return Address::from_native(&native, offsetof(sockaddr_un, sun_path) + name.size() + 1);
}

std::string unix_text(const Address& address) {
  auto native = native_as<sockaddr_un>(address);
  size_t length = address.native_size() - offsetof(sockaddr_un, sun_path);
  if (length == 0) return std::string(kUnixPrefix);
  if (native.sun_path[0] == '\0') return text(kUnixPrefix, "@", std::string_view(native.sun_path + 1, length - 1));
  return text(kUnixPrefix, std::string_view(native.sun_path, strnlen(native.sun_path, length)));
}

std::string ipv6_text(const sockaddr_in6& native) {
  char host[INET6_ADDRSTRLEN] = {};
  inet_ntop(AF_INET6, &native.sin6_addr, host, sizeof host);
  char name[IF_NAMESIZE] = {};
  std::string scope;
  if (native.sin6_scope_id != 0) {
    scope = if_indextoname(native.sin6_scope_id, name) ? text("%", name) : text("%", native.sin6_scope_id);
  }
  return text("[", host, scope, "]:", ntohs(native.sin6_port));
}

}  // namespace

Result<Address> Address::parse(std::string_view given) {
  if (given.starts_with(kUnixPrefix)) {
    std::string_view name = given.substr(kUnixPrefix.size());
    if (name.starts_with('@')) return unix_abstract(name.substr(1));
    return unix_path(name);
  }
  size_t colon = given.rfind(':');
  if (colon == given.npos) return not_an_address(given, "it has no port");
  std::string_view host = given.substr(0, colon);
  HORO_ASSIGN(uint16_t port, parse_port(given, given.substr(colon + 1)));
  if (host.starts_with('[') && host.ends_with(']')) {
    return ip(host.substr(1, host.size() - 2), port);
  }
  if (host.find(':') != host.npos) return not_an_address(given, "an IPv6 address stands in square brackets");
  return ip(host, port);
}

Result<Address> Address::ip(std::string_view literal, uint16_t port) {
  size_t percent = literal.find('%');
  std::string host(literal.substr(0, percent));
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  if (percent == literal.npos && inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) return address_of(v4);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  if (inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) != 1) {
    return not_an_address(literal, "it is neither an IPv4 nor an IPv6 literal");
  }
  if (percent != literal.npos) {
    std::string scope(literal.substr(percent + 1));
    v6.sin6_scope_id = if_nametoindex(scope.c_str());
    if (v6.sin6_scope_id == 0) return not_an_address(literal, text("there is no interface '", scope, "'"));
  }
  return address_of(v6);
}

Address Address::loopback(uint16_t port) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address_of(v4);
}

Result<Address> Address::unix_abstract(std::string_view name) { return unix_address(name, true); }

Result<Address> Address::unix_path(std::string_view path) { return unix_address(path, false); }

Result<Address> Address::from_native(const void* sockaddr, size_t size) {
  if (size < sizeof(sa_family_t) || size > kCapacity) {
    return Status(Code::kInvalidArgument, text("a socket address has 2 to ", kCapacity, " bytes, not ", size));
  }
  Address address;
  std::memcpy(address.bytes_.data(), sockaddr, size);
  address.size_ = static_cast<uint32_t>(size);
  if (address.family() == Family::kNone) {
    return Status(Code::kInvalidArgument, "the socket address is neither IPv4, IPv6 nor Unix");
  }
  return address;
}

Family Address::family() const {
  sa_family_t family = AF_UNSPEC;
  if (size_ < sizeof family) return Family::kNone;
  std::memcpy(&family, bytes_.data(), sizeof family);
  if (family == AF_INET && size_ >= sizeof(sockaddr_in)) return Family::kIpv4;
  if (family == AF_INET6 && size_ >= sizeof(sockaddr_in6)) return Family::kIpv6;
  return family == AF_UNIX ? Family::kUnix : Family::kNone;
}

uint16_t Address::port() const {
  switch (family()) {
    case Family::kIpv4:
      return ntohs(native_as<sockaddr_in>(*this).sin_port);
    case Family::kIpv6:
      return ntohs(native_as<sockaddr_in6>(*this).sin6_port);
    default:
      return 0;
  }
}

Address Address::with_port(uint16_t port) const {
  if (family() == Family::kIpv4) {
    auto native = native_as<sockaddr_in>(*this);
    native.sin_port = htons(port);
    return address_of(native);
  }
  if (family() == Family::kIpv6) {
    auto native = native_as<sockaddr_in6>(*this);
    native.sin6_port = htons(port);
    return address_of(native);
  }
  return *this;
}

std::string Address::to_string() const {
  switch (family()) {
    case Family::kIpv4: {
      auto native = native_as<sockaddr_in>(*this);
      char host[INET_ADDRSTRLEN] = {};
      inet_ntop(AF_INET, &native.sin_addr, host, sizeof host);
      return text(host, ":", ntohs(native.sin_port));
    }
    case Family::kIpv6:
      return ipv6_text(native_as<sockaddr_in6>(*this));
    case Family::kUnix:
      return unix_text(*this);
    case Family::kNone:
      break;
  }
  return "none";
}

bool Address::is_loopback() const {
  switch (family()) {
    case Family::kIpv4:
      return (ntohl(native_as<sockaddr_in>(*this).sin_addr.s_addr) >> 24) == 127;
    case Family::kIpv6: {
      auto host = native_as<sockaddr_in6>(*this).sin6_addr;
      return IN6_IS_ADDR_LOOPBACK(&host) || (IN6_IS_ADDR_V4MAPPED(&host) && host.s6_addr[12] == 127);
    }
    case Family::kUnix:
      return true;
    case Family::kNone:
      break;
  }
  return false;
}

bool Address::is_any() const {
  if (family() == Family::kIpv4) return native_as<sockaddr_in>(*this).sin_addr.s_addr == htonl(INADDR_ANY);
  if (family() != Family::kIpv6) return false;
  auto host = native_as<sockaddr_in6>(*this).sin6_addr;
  return IN6_IS_ADDR_UNSPECIFIED(&host);
}

bool Address::is_link_local() const {
  if (family() == Family::kIpv4) return (ntohl(native_as<sockaddr_in>(*this).sin_addr.s_addr) >> 16) == 0xA9FE;
  if (family() != Family::kIpv6) return false;
  auto host = native_as<sockaddr_in6>(*this).sin6_addr;
  return IN6_IS_ADDR_LINKLOCAL(&host);
}

bool operator==(const Address& a, const Address& b) {
  return a.size_ == b.size_ && std::memcmp(a.bytes_.data(), b.bytes_.data(), a.size_) == 0;
}

}  // namespace horo::net
