// Where a socket listens or connects: IPv4, IPv6, or a Unix socket by abstract name or path.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "horo/base/deadline.h"
#include "horo/base/status.h"

namespace horo::net {

enum class Family : uint8_t { kNone, kIpv4, kIpv6, kUnix };

/// A value: holds the kernel's own form, so that no conversion can fail later.
class Address {
 public:
  /// No address; family() is kNone.
  Address() = default;

  /// "127.0.0.1:5000", "[::1]:5000", "[fe80::1%eth0]:5000", "unix:@name" (abstract), "unix:/path". Never asks a name
  /// server: host names are for resolve().
  static Result<Address> parse(std::string_view text);
  /// An IP literal without port ("10.0.0.1", "::1", "fe80::1%eth0").
  static Result<Address> ip(std::string_view literal, uint16_t port);
  static Address loopback(uint16_t port = 0);
  static Result<Address> unix_abstract(std::string_view name);
  static Result<Address> unix_path(std::string_view path);
  /// From the kernel's sockaddr of `size` bytes.
  static Result<Address> from_native(const void* sockaddr, size_t size);

  Family family() const;
  /// 0 for Unix sockets.
  uint16_t port() const;
  Address with_port(uint16_t port) const;
  /// What parse() reads; "none" for an empty address; "unix:" for an unnamed Unix socket.
  std::string to_string() const;

  bool is_unix() const { return family() == Family::kUnix; }
  /// Reachable from this machine only: 127.0.0.0/8, ::1, ::ffff:127.0.0.0/104, Unix sockets.
  bool is_loopback() const;
  /// 0.0.0.0 or ::, that is: every interface.
  bool is_any() const;
  /// fe80::/10 and 169.254.0.0/16: of use on one link only.
  bool is_link_local() const;

  const void* native() const { return bytes_.data(); }
  uint32_t native_size() const { return size_; }

  friend bool operator==(const Address& a, const Address& b);

 private:
  static constexpr size_t kCapacity = 128;  // sizeof(sockaddr_storage)
  alignas(8) std::array<std::byte, kCapacity> bytes_{};
  uint32_t size_ = 0;
};

/// All addresses of "host:port", "[ip]:port" or anything parse() reads. Asks the name server for host names and then
/// blocks for as long as the system's resolver does (getaddrinfo cannot be stopped): only for use at start.
Result<std::vector<Address>> resolve(std::string_view host_and_port);

/// One address of one network interface that is up.
struct Interface {
  std::string name;
  Address address;
};

/// All of this host's IP addresses that are up, in the kernel's order.
Result<std::vector<Interface>> interfaces();

/// The address (port 0) to be reached at: that of the interface called `name` (IPv4 first, link-local last), or, for an
/// empty name, the best one that is not loopback, or loopback when there is no other.
/// kNotFound lists the interfaces that exist.
Result<Address> choose_interface(std::string_view name);
/// The same choice as a pure function over a given list.
Result<Address> choose_interface(const std::vector<Interface>& list, std::string_view name);

}  // namespace horo::net
