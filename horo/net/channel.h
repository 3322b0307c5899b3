// The authenticated channel: messages between two members of a job over TLS 1.3 with the job's key.
//
// How a connection is made:
//   1. TLS 1.3 handshake with an external pre-shared key and a fresh key exchange (tls.h). The pre-shared key is
//      derived from the job's key and an identity: job, purpose, epoch, connecting and accepting member (identity.h).
//      Whoever does not hold the job's key learns nothing and gets nowhere; nor does a proof made for other members,
//      for the other direction or another epoch, or one sent back to its sender.
//   2. The connecting side sends its Hello, the accepting side answers with its own and its verdict (hello.h).
//   3. Frames (frame.h) in both directions.
// Before 1 is done a peer gets at most `most_unauthenticated` bytes read and `handshake_limit` time.
//
// Descriptors travel outside TLS, on the Unix socket below, between two records. Both sides must agree on the point:
// a message tells that descriptors follow, nothing is sent after it but send_descriptors(), and the receiver's next
// call after that message is receive_descriptors(). This is safe to do because a channel never reads beyond the record
// and message that it returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "horo/base/deadline.h"
#include "horo/base/status.h"
#include "horo/net/frame.h"
#include "horo/net/hello.h"
#include "horo/net/identity.h"
#include "horo/net/key.h"
#include "horo/net/poller.h"
#include "horo/net/socket.h"
#include "horo/net/tls.h"

namespace horo::net {

struct ChannelOptions {
  /// This side: its member and epoch must be those of the identity. See local_hello().
  Hello hello;
  size_t most_unauthenticated = 4096;
  /// What was read from the socket already, to find out what comes (listener.h); it counts as unauthenticated.
  std::vector<std::byte> received_before;
  Duration handshake_limit = std::chrono::seconds(2);
  /// Payload of one message, in both directions.
  uint32_t most_message = 16 << 20;
  /// Bytes of messages that wait to be sent; send() refuses more.
  size_t most_queued = 32 << 20;
};

struct Message {
  FrameHeader header;
  std::vector<std::byte> payload;
};

/// Decides, on the accepting side, whether an authenticated peer whose Hello fits is welcome. A refusal and its reason
/// are told to the peer.
using Admit = std::function<Status(const Identity& identity, const Hello& theirs)>;

/// Used by one thread at a time. Never blocks, except where a deadline is passed.
///
/// In a loop: watch fd() for interest(); when ready, or when deadline() has passed, call progress(); when ready(), take
/// messages with receive() until there is none.
class Channel {
 public:
  /// Takes a connected socket. `identity.connector` is this side.
  static Result<Channel> connect(std::shared_ptr<const Tls> tls, Socket socket, const Key& key,
                                 const Identity& identity, ChannelOptions options);
  /// Takes an accepted socket. This side is options.hello.member of `job`. `admit` may be empty: everyone who holds the
  /// key and whose Hello fits.
  static Result<Channel> accept(std::shared_ptr<const Tls> tls, Socket socket, std::shared_ptr<const Key> key,
                                std::string job, ChannelOptions options, Admit admit = {});
  Channel(Channel&&) noexcept;
  Channel& operator=(Channel&&) noexcept;
  ~Channel();

  /// Goes on with the handshake and sends what is queued, as far as possible now. After an error the channel is of no
  /// more use:
  ///   kUnauthenticated  the peer does not hold the key, or is not who it says
  ///   kIncompatible     versions, features or epochs do not fit
  ///   kTimeout          the handshake took too long
  ///   kPeerLost         the connection broke
  /// or what the accepting side's Admit returned.
  Status progress(Time now = Clock::now());
  bool ready() const;
  Interest interest() const;
  /// Of the handshake; never once ready().
  Deadline deadline() const;
  int fd() const;

  /// Queues a message; the header's version, length and checksum are filled in. kUnavailable when too much is queued.
  Status send(FrameHeader header, std::span<const std::byte> payload);
  size_t queued() const;
  /// The next whole message; none when it has not arrived yet. kStopped when the peer closed in an orderly way,
  /// kPeerLost when the connection broke, kCorrupt for what is no message.
  Result<std::optional<Message>> receive();
  /// Says goodbye if possible, and closes.
  void close();

  /// The same with waiting: until ready, until everything is sent, until a message is there.
  Status handshake(Deadline deadline);
  Status flush(Deadline deadline);
  Result<Message> receive(Deadline deadline);

  /// Unix sockets, once ready, with nothing queued, at the point that both agreed on.
  Status send_descriptors(std::span<const int> descriptors, Deadline deadline);
  /// Exactly `count`, close-on-exec; kCorrupt otherwise.
  Result<std::vector<UniqueFd>> receive_descriptors(size_t count, Deadline deadline);

  /// A key that only the two ends of this channel know; equal on both for equal label and context.
  Result<Key> export_key(std::string_view label, std::span<const std::byte> context) const;

  /// Once ready().
  const Identity& identity() const;
  const Hello& mine() const;
  const Hello& theirs() const;
  uint16_t version() const;
  bool is_connector() const;
  const Socket& socket() const;

 private:
  struct State;
  explicit Channel(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace horo::net
