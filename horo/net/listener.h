// Where connections arrive: authenticated channels and attached data streams leave it, everything else is refused
// cheaply.
//
// A connection that has not proven anything costs at most: one of `most_pending` places (the oldest is dropped for a
// new one), ChannelOptions::handshake_limit of time, ChannelOptions::most_unauthenticated bytes. Its first bytes are
// looked at before TLS is: what is neither the beginning of a TLS ClientHello nor of an attach request is closed at
// once. More than `most_accepts_per_second` connections wait in the kernel's queue, or are refused by it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "horo/base/deadline.h"
#include "horo/base/log.h"
#include "horo/base/status.h"
#include "horo/net/address.h"
#include "horo/net/attach.h"
#include "horo/net/channel.h"
#include "horo/net/key.h"
#include "horo/net/poller.h"
#include "horo/net/socket.h"

namespace horo::net {

/// What the first bytes of a connection look like.
enum class Opening : uint8_t { kUndecided, kTls, kAttach, kGarbage };
/// kUndecided only for fewer than kOpeningBytes bytes.
Opening look_at(std::span<const std::byte> first_bytes);
inline constexpr size_t kOpeningBytes = 11;

struct ListenerOptions {
  std::string job;
  /// Of accepted channels; `channel.hello` is this side.
  ChannelOptions channel;
  Admit admit;
  AdmitStream admit_stream;
  size_t most_pending = 256;
  double most_accepts_per_second = 2000;
  ListenOptions listen;
  /// Refusals are told there, at most once a second and kind. Must outlive the listener.
  Log* log = nullptr;
};

struct ListenerCounts {
  uint64_t accepted = 0;
  uint64_t channels = 0;
  uint64_t streams = 0;
  uint64_t garbage = 0;    ///< Refused by their first bytes.
  uint64_t refused = 0;    ///< Refused by key, identity, Hello or admission, or broken on the way.
  uint64_t too_slow = 0;   ///< Refused by the time limit.
  uint64_t dropped = 0;    ///< Made place for newer ones.
  uint64_t shortages = 0;  ///< Refused for want of descriptors.
};

/// Has no thread: watch fd() for reading and call step() when it is ready or deadline() has passed. Used by one thread.
class Listener {
 public:
  /// kInvalidArgument for an address beyond this machine with the public key (Key::none()).
  static Result<Listener> open(const Address& at, std::shared_ptr<const Tls> tls, std::shared_ptr<const Key> key,
                               ListenerOptions options);
  Listener(Listener&&) noexcept;
  Listener& operator=(Listener&&) noexcept;
  ~Listener();

  int fd() const;
  Deadline deadline() const;
  /// Accepts and goes on with what is pending, without waiting. An error means that listening itself is broken.
  Status step(Time now = Clock::now());

  std::optional<Channel> take_channel();
  std::optional<AttachedStream> take_stream();

  /// Lets the peer of a channel attach streams here; see attach_keys(channel, Attaching::kIncoming).
  void add_session(AttachKeys keys);
  void remove_session(const SessionId& session);
  /// For the Hellos of connections accepted from now on.
  void set_epoch(uint64_t epoch);

  const Address& address() const;
  size_t pending() const;
  const ListenerCounts& counts() const;

 private:
  struct State;
  explicit Listener(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace horo::net
