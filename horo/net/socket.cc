#include "horo/net/socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "horo/base/text.h"
#include "horo/net/poller.h"
#include "horo/net/system_error.h"

namespace horo::net {
namespace {

const sockaddr* native(const Address& address) { return static_cast<const sockaddr*>(address.native()); }

int domain_of(const Address& address) {
  switch (address.family()) {
    case Family::kIpv4:
      return AF_INET;
    case Family::kIpv6:
      return AF_INET6;
    default:
      return AF_UNIX;
  }
}

template <class Call>
ssize_t without_interrupts(Call call) {
  ssize_t result = 0;
  while ((result = call()) < 0 && errno == EINTR) {
  }
  return result;
}

IoResult sent(ssize_t result) {
  if (result >= 0) return IoResult::moved(static_cast<size_t>(result));
  if (errno == EAGAIN || errno == EWOULDBLOCK) return IoResult::would_block();
  return IoResult::failed(system_error("sending", errno));
}

IoResult received(ssize_t result) {
  if (result > 0) return IoResult::moved(static_cast<size_t>(result));
  if (result == 0) return IoResult::end();
  if (errno == EAGAIN || errno == EWOULDBLOCK) return IoResult::would_block();
  return IoResult::failed(system_error("receiving", errno));
}

template <class Byte>
msghdr message_of(std::span<const std::span<Byte>> buffers, std::array<iovec, kMostBuffers>& parts) {
  size_t count = std::min(buffers.size(), parts.size());
  for (size_t i = 0; i < count; ++i) {
    parts[i] = {const_cast<std::byte*>(buffers[i].data()), buffers[i].size()};
  }
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  return message;
}

/// A Unix listener with a full queue refuses a non-blocking connect and cannot be polled for; a blocking connect waits
/// for room, as long as the send timeout says.
Result<Socket> connect_unix(const Address& to, Deadline deadline, const SocketOptions& options,
                            const std::string& what) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return system_error(what, errno);
  while (true) {
    // A zero would mean for ever; a year is for ever enough.
    auto left = std::clamp<Duration>(deadline.remaining(), std::chrono::microseconds(1), std::chrono::hours(24 * 365));
    auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    auto rest = std::chrono::duration_cast<std::chrono::microseconds>(left - seconds);
    timeval limit{static_cast<time_t>(seconds.count()), static_cast<suseconds_t>(rest.count())};
    if (setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0) return system_error(what, errno);
    if (::connect(fd.get(), native(to), to.native_size()) == 0) break;
    if (errno == EAGAIN) return Status(Code::kTimeout, text(what, ": the listener's queue stays full"));
    if (errno != EINTR) return system_error(what, errno);
  }
  HORO_ASSIGN(Socket socket, Socket::adopt(std::move(fd)));
  HORO_TRY(socket.set_options(options));
  return socket;
}

/// Where nobody listens at a port that the system also gives to those who connect, it may give that very port, and the
/// socket is connected to itself.
bool is_its_own_peer(int fd) {
  sockaddr_storage mine{};
  sockaddr_storage theirs{};
  socklen_t size = sizeof mine;
  socklen_t other_size = sizeof theirs;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&mine), &size) != 0) return false;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&theirs), &other_size) != 0) return false;
  return mine.ss_family != AF_UNIX && size == other_size && std::memcmp(&mine, &theirs, size) == 0;
}

}  // namespace

Result<Socket> Socket::adopt(UniqueFd fd) {
  int flags = fcntl(fd.get(), F_GETFL);
  if (flags < 0 || fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK) < 0 || fcntl(fd.get(), F_SETFD, FD_CLOEXEC) < 0) {
    return system_error(text("taking over descriptor ", fd.get(), " as a socket"), errno);
  }
  return Socket(std::move(fd));
}

Result<std::pair<Socket, Socket>> Socket::pair() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) {
    return system_error("opening a pair of sockets", errno);
  }
  return std::pair(Socket(UniqueFd(fds[0])), Socket(UniqueFd(fds[1])));
}

Result<Socket> Socket::start_connect(const Address& to, const SocketOptions& options) {
  if (to.family() == Family::kNone) return Status(Code::kInvalidArgument, "connecting to an empty address");
  Socket socket(UniqueFd(::socket(domain_of(to), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
  if (!socket.valid()) return system_error("opening a socket", errno);
  HORO_TRY(socket.set_options(options));
  if (::connect(socket.fd(), native(to), to.native_size()) == 0) return socket;
  // EINTR goes on in the background like EINPROGRESS. EAGAIN: a Unix listener's queue is full; only connect() waits.
  if (errno == EINPROGRESS || errno == EINTR) return socket;
  return system_error(text("connecting to ", to.to_string()), errno);
}

Status Socket::connected() const {
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(fd(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error == 0 && is_its_own_peer(fd())) error = ECONNREFUSED;
  if (error == 0) return {};
  // Nobody was there to be lost.
  if (error == ETIMEDOUT) return {Code::kTimeout, "connecting: the host does not answer"};
  return system_error("connecting", error);
}

Result<Socket> Socket::connect(const Address& to, Deadline deadline, const SocketOptions& options) {
  std::string what = text("connecting to ", to.to_string());
  if (to.is_unix()) return connect_unix(to, deadline, options, what);
  HORO_ASSIGN(Socket socket, start_connect(to, options));
  HORO_TRY(wait_ready(socket.fd(), Interest::kWrite, deadline, what.c_str()));
  Status outcome = socket.connected();
  if (!outcome.ok()) return outcome.prefixed(to.to_string());
  return socket;
}

IoResult Socket::send(std::span<const std::byte> data) const {
  return sent(without_interrupts([&] { return ::send(fd(), data.data(), data.size(), MSG_NOSIGNAL); }));
}

IoResult Socket::send(std::span<const std::span<const std::byte>> buffers) const {
  std::array<iovec, kMostBuffers> parts;
  msghdr message = message_of(buffers, parts);
  return sent(without_interrupts([&] { return ::sendmsg(fd(), &message, MSG_NOSIGNAL); }));
}

IoResult Socket::receive(std::span<std::byte> into) const {
  HORO_CHECK(!into.empty(), "receiving into an empty buffer looks like the end of the stream");
  return received(without_interrupts([&] { return ::recv(fd(), into.data(), into.size(), 0); }));
}

IoResult Socket::receive(std::span<const std::span<std::byte>> buffers) const {
  std::array<iovec, kMostBuffers> parts;
  msghdr message = message_of(buffers, parts);
  return received(without_interrupts([&] { return ::recvmsg(fd(), &message, 0); }));
}

IoResult Socket::peek(std::span<std::byte> into) const {
  HORO_CHECK(!into.empty(), "receiving into an empty buffer looks like the end of the stream");
  return received(without_interrupts([&] { return ::recv(fd(), into.data(), into.size(), MSG_PEEK); }));
}

Status Socket::send_all(std::span<const std::byte> data, Deadline deadline) const {
  while (!data.empty()) {
    IoResult result = send(data);
    if (result.is_failed()) return result.status();
    data = data.subspan(result.bytes());
    if (result.is_would_block()) HORO_TRY(wait_ready(fd(), Interest::kWrite, deadline, "sending"));
  }
  return {};
}

Status Socket::receive_all(std::span<std::byte> into, Deadline deadline) const {
  while (!into.empty()) {
    IoResult result = receive(into);
    if (result.is_failed()) return result.status();
    if (result.is_end()) {
      return {Code::kPeerLost, text(peer_text(), " ended the stream with ", into.size(), " bytes still expected")};
    }
    into = into.subspan(result.bytes());
    if (result.is_would_block()) HORO_TRY(wait_ready(fd(), Interest::kRead, deadline, "receiving"));
  }
  return {};
}

void Socket::shutdown_send() const { ::shutdown(fd(), SHUT_WR); }
void Socket::shutdown_both() const { ::shutdown(fd(), SHUT_RDWR); }

}  // namespace horo::net
