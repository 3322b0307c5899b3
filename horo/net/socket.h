// Non-blocking stream sockets (TCP, Unix), close-on-exec, without SIGPIPE.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "horo/base/deadline.h"
#include "horo/base/status.h"
#include "horo/net/address.h"
#include "horo/net/fd.h"
#include "horo/net/io_result.h"

namespace horo::net {

/// The process at the other end of a Unix socket, as the kernel saw it when the connection was made.
struct PeerCredentials {
  int32_t pid = 0;
  uint32_t uid = 0;
  uint32_t gid = 0;
};

/// Options of TCP sockets; all but the buffer sizes are ignored on Unix sockets. Zero and empty mean: the system's.
struct SocketOptions {
  bool no_delay = true;
  int send_buffer = 0;
  int receive_buffer = 0;
  /// Sent data that stays unacknowledged this long breaks the connection (TCP_USER_TIMEOUT).
  Duration user_timeout{0};
  /// "cubic", "reno". The special word "unpaced" takes the first of cubic and reno that the system allows when its
  /// default is one that paces (bbr), and leaves any other default alone.
  std::string_view congestion = "unpaced";
};

/// How many buffers one vectored call takes; more are left for the next call.
inline constexpr size_t kMostBuffers = 64;
/// How many descriptors one message carries.
inline constexpr size_t kMostDescriptors = 16;

class Socket {
 public:
  Socket() = default;
  /// Takes over a connected stream socket and makes it non-blocking and close-on-exec.
  static Result<Socket> adopt(UniqueFd fd);
  /// Two connected Unix sockets.
  static Result<std::pair<Socket, Socket>> pair();

  /// Starts to connect. Writable when decided; connected() then tells the outcome.
  static Result<Socket> start_connect(const Address& to, const SocketOptions& options = {});
  /// OK when connected, else why not. Only for a socket that start_connect() made and that has become writable.
  Status connected() const;
  /// Connects and waits for it; kTimeout when the deadline passes, kUnavailable when nobody listens there.
  static Result<Socket> connect(const Address& to, Deadline deadline, const SocketOptions& options = {});
  /// Connects to the one of them (at most 256) that answers first; an error names them all, each with its reason.
  static Result<Socket> connect_any(std::span<const Address> to, Deadline deadline, const SocketOptions& options = {});

  /// Moves what can be moved now. A peer that is gone is kPeerLost from send, end or kPeerLost from receive.
  IoResult send(std::span<const std::byte> data) const;
  IoResult send(std::span<const std::span<const std::byte>> buffers) const;
  /// kEnd when the peer has closed its side. An empty buffer is a mistake of the caller.
  IoResult receive(std::span<std::byte> into) const;
  IoResult receive(std::span<const std::span<std::byte>> buffers) const;
  /// Like receive(), but leaves the bytes to be received again.
  IoResult peek(std::span<std::byte> into) const;

  /// Sends or receives all of it, waiting; kPeerLost when the stream ends first.
  Status send_all(std::span<const std::byte> data, Deadline deadline) const;
  Status receive_all(std::span<std::byte> into, Deadline deadline) const;

  /// Unix sockets: sends `data` (1 byte at least) with 1 to kMostDescriptors descriptors attached to its first byte.
  /// The peer gets duplicates.
  IoResult send_descriptors(std::span<const std::byte> data, std::span<const int> descriptors) const;
  /// Unix sockets: receives data and the descriptors attached to it, close-on-exec, appended to `descriptors`.
  /// kCorrupt, with all of them closed, unless exactly `expected` came.
  IoResult receive_descriptors(std::span<std::byte> into, size_t expected, std::vector<UniqueFd>& descriptors) const;

  Status set_options(const SocketOptions& options) const;
  /// Acknowledge at once instead of waiting for data to go back (TCP_QUICKACK). The kernel forgets it now and then.
  Status set_quick_ack(bool on) const;
  Result<std::string> congestion_control() const;
  /// Ends this side's stream: the peer receives kEnd after what was sent.
  void shutdown_send() const;
  /// Ends both streams: whoever waits for this socket, on another thread say, is told that it has ended.
  void shutdown_both() const;

  Result<Address> local_address() const;
  Result<Address> peer_address() const;
  /// peer_address() as text; "unix:", or "unknown address", when there is none.
  std::string peer_text() const;
  Result<PeerCredentials> peer_credentials() const;

  int fd() const { return fd_.get(); }
  bool valid() const { return fd_.valid(); }
  void close() { fd_.reset(); }
  [[nodiscard]] UniqueFd release() { return std::move(fd_); }

 private:
  explicit Socket(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

struct ListenOptions {
  int backlog = 512;
  /// Buffer sizes are inherited by accepted sockets.
  SocketOptions socket;
};

/// A listening socket.
///
/// When descriptors run out, a connection that waits would keep the socket readable for ever and a loop would spin. So
/// one spare descriptor is held: accept() gives it up to take the connection, closes that connection, takes the spare
/// back and returns kUnavailable. If even that fails (the whole system is short), may_accept_at() tells until when the
/// caller should not watch the socket.
class ListenSocket {
 public:
  static Result<ListenSocket> listen(const Address& at, const ListenOptions& options = {});

  /// A connection; none when nobody waits; kUnavailable when one was refused for want of descriptors.
  Result<std::optional<Socket>> accept(Time now = Clock::now());
  /// In the past unless the system is short of descriptors.
  Time may_accept_at() const { return may_accept_at_; }

  /// With the port that the system chose.
  const Address& address() const { return address_; }
  int fd() const { return socket_.fd(); }

 private:
  ListenSocket(Socket socket, UniqueFd spare, Address address)
      : socket_(std::move(socket)), spare_(std::move(spare)), address_(address) {}
  Result<std::optional<Socket>> shed(int error, Time now);

  Socket socket_;
  UniqueFd spare_;
  Address address_;
  Time may_accept_at_{};
};

}  // namespace horo::net
