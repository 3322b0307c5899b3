// Options and names of sockets.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "horo/base/text.h"
#include "horo/net/socket.h"
#include "horo/net/system_error.h"

namespace horo::net {
namespace {

Status set(int fd, int level, int option, int value, const char* what) {
  if (setsockopt(fd, level, option, &value, sizeof value) == 0) return {};
  return system_error(text("setting ", what, " to ", value), errno);
}

bool set_congestion(int fd, std::string_view name) {
  return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size())) == 0;
}

/// Pacing spreads packets over time from an estimate of the bandwidth, which bursts of collectives never let settle.
void choose_unpaced(const Socket& socket) {
  auto present = socket.congestion_control();
  if (!present.ok() || !present->starts_with("bbr")) return;
  // Where neither is allowed the default stays: slower, not wrong.
  for (std::string_view name : {"cubic", "reno"}) {
    if (set_congestion(socket.fd(), name)) return;
  }
}

bool is_tcp(int fd) {
  int domain = 0;
  socklen_t size = sizeof domain;
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain != AF_UNIX;
}

template <class Ask>
Result<Address> ask_address(Ask ask, int fd, const char* what) {
  sockaddr_storage native{};
  socklen_t size = sizeof native;
  if (ask(fd, reinterpret_cast<sockaddr*>(&native), &size) != 0) return system_error(what, errno);
  return Address::from_native(&native, size);
}

}  // namespace

Status Socket::set_options(const SocketOptions& options) const {
  // The kernel doubles these values and cuts them at net.core.{w,r}mem_max.
  if (options.send_buffer > 0) HORO_TRY(set(fd(), SOL_SOCKET, SO_SNDBUF, options.send_buffer, "SO_SNDBUF"));
  if (options.receive_buffer > 0) HORO_TRY(set(fd(), SOL_SOCKET, SO_RCVBUF, options.receive_buffer, "SO_RCVBUF"));
  if (!is_tcp(fd())) return {};
  HORO_TRY(set(fd(), IPPROTO_TCP, TCP_NODELAY, options.no_delay ? 1 : 0, "TCP_NODELAY"));
  if (options.user_timeout.count() > 0) {
    auto limit = std::chrono::ceil<std::chrono::milliseconds>(options.user_timeout).count();
    HORO_TRY(set(fd(), IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(limit), "TCP_USER_TIMEOUT"));
  }
  if (options.congestion == "unpaced") {
    choose_unpaced(*this);
  } else if (!options.congestion.empty() && !set_congestion(fd(), options.congestion)) {
    return system_error(text("choosing the congestion control '", options.congestion,
                             "' (see net.ipv4.tcp_allowed_congestion_control)"),
                        errno);
  }
  return {};
}

Status Socket::set_quick_ack(bool on) const {
  return is_tcp(fd()) ? set(fd(), IPPROTO_TCP, TCP_QUICKACK, on ? 1 : 0, "TCP_QUICKACK") : Status();
}

Result<std::string> Socket::congestion_control() const {
  std::array<char, 16> name{};
  socklen_t size = name.size();
  if (getsockopt(fd(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &size) != 0) {
    return system_error("asking for the congestion control", errno);
  }
  return std::string(name.data(), strnlen(name.data(), size));
}

Result<Address> Socket::local_address() const { return ask_address(getsockname, fd(), "asking for a local address"); }

Result<Address> Socket::peer_address() const { return ask_address(getpeername, fd(), "asking for a peer's address"); }

std::string Socket::peer_text() const {
  auto address = peer_address();
  return address.ok() ? address->to_string() : "unknown address";
}

Result<PeerCredentials> Socket::peer_credentials() const {
  ucred native{};
  socklen_t size = sizeof native;
  if (getsockopt(fd(), SOL_SOCKET, SO_PEERCRED, &native, &size) != 0) {
    return system_error("asking for the peer's credentials", errno);
  }
  return PeerCredentials{native.pid, native.uid, native.gid};
}

}  // namespace horo::net
