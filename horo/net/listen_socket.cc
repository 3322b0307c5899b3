#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "horo/base/text.h"
#include "horo/net/socket.h"
#include "horo/net/system_error.h"

namespace horo::net {
namespace {

constexpr Duration kPauseWhenShort = std::chrono::milliseconds(100);

UniqueFd open_spare() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

int accept_one(int fd) {
  int accepted = -1;
  // ECONNABORTED: the peer left while it waited; the next one counts.
  while ((accepted = ::accept4(fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)) < 0 &&
         (errno == EINTR || errno == ECONNABORTED)) {
  }
  return accepted;
}

bool is_shortage(int error) { return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM; }

}  // namespace

Result<ListenSocket> ListenSocket::listen(const Address& at, const ListenOptions& options) {
  std::string what = text("listening on ", at.to_string());
  int domain = at.family() == Family::kIpv4 ? AF_INET : at.family() == Family::kIpv6 ? AF_INET6 : AF_UNIX;
  if (at.family() == Family::kNone) return Status(Code::kInvalidArgument, text(what, ": an empty address"));
  UniqueFd fd(::socket(domain, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return system_error(what, errno);
  int one = 1;
  // SO_REUSEADDR: a restarted job may take its port again although old connections linger.
  if (domain != AF_UNIX && setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0) {
    return system_error(what, errno);
  }
  // IPv4 and IPv6 are listened to by separate sockets, whatever the system's default is.
  if (domain == AF_INET6) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
  HORO_ASSIGN(Socket socket, Socket::adopt(std::move(fd)));
  HORO_TRY(socket.set_options(options.socket));
  if (::bind(socket.fd(), static_cast<const sockaddr*>(at.native()), at.native_size()) != 0 ||
      ::listen(socket.fd(), options.backlog) != 0) {
    return system_error(what, errno);
  }
  HORO_ASSIGN(Address address, socket.local_address());
  UniqueFd spare = open_spare();
  if (!spare) return system_error(text(what, ": opening a spare descriptor"), errno);
  return ListenSocket(std::move(socket), std::move(spare), address);
}

Result<std::optional<Socket>> ListenSocket::accept(Time now) {
  int accepted = accept_one(socket_.fd());
  if (accepted >= 0) {
    HORO_ASSIGN(Socket socket, Socket::adopt(UniqueFd(accepted)));
    return std::optional<Socket>(std::move(socket));
  }
  if (errno == EAGAIN || errno == EWOULDBLOCK) return std::optional<Socket>();
  if (is_shortage(errno)) return shed(errno, now);
  return system_error(text("accepting on ", address_.to_string()), errno);
}

Result<std::optional<Socket>> ListenSocket::shed(int error, Time now) {
  spare_.reset();
  bool refused = false;
  bool nobody = false;
  {
    UniqueFd victim(accept_one(socket_.fd()));
    refused = victim.valid();
    // The kernel looks for a descriptor first and for a connection second.
    nobody = !refused && (errno == EAGAIN || errno == EWOULDBLOCK);
  }
  spare_ = open_spare();
  if (nobody && spare_) return std::optional<Socket>();
  if (!refused || !spare_) may_accept_at_ = now + kPauseWhenShort;
  return system_error(text("refused a connection on ", address_.to_string()), error);
}

}  // namespace horo::net
