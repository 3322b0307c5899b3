// Data streams: plain connections that prove to belong to an authenticated channel.
//
// Three messages under keys that only the two ends of the channel can export, one key for each direction of attaching
// and each role (A connects to B, B answers A; B connects to A, A answers B):
//
//   connector -> acceptor   request    who, to whom, which session, epoch, group and stream; 32 fresh random bytes; MAC
//   acceptor -> connector   challenge  32 fresh random bytes; MAC over the request and them
//   connector -> acceptor   proof      MAC over the request and the acceptor's random bytes
//
// Why this is safe: the proof covers random bytes that the acceptor has just drawn, so a recorded connection that is
// played back fails (a replayed request gets a challenge that its sender cannot answer), and the acceptor needs no
// memory of what it has seen. The challenge covers the connector's random bytes, so a recorded answer is worth nothing
// either. The role keys differ, so no message can be sent back to its sender as an answer. The request is inside every
// MAC, so nothing in it can be exchanged. A session's keys go with its channel.
//
// What follows is, as the request's `protection` says:
//   kChecksum    plain frames with checksums, against accidents. Someone who can change packets between the two hosts
//                can change those bytes, and someone who can read packets reads them.
//   the others   sealed records (record.h), under keys made for each direction of this one stream from a key of the
//                channel, the whole request and both nonces: epoch, group, number and members are bound in, and a
//                stream that attaches again has other keys.
// Both sides know from the Hello whether the job encrypts; a request that differs is refused.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "horo/base/deadline.h"
#include "horo/base/status.h"
#include "horo/net/channel.h"
#include "horo/net/key.h"
#include "horo/net/poller.h"
#include "horo/net/record.h"
#include "horo/net/socket.h"

namespace horo::net {

using SessionId = std::array<std::byte, 16>;
using Nonce = std::array<std::byte, 32>;

/// What one direction of attaching under one channel needs. Equal on both ends.
struct AttachKeys {
  SessionId session{};  ///< Public.
  Member connector = 0;
  Member acceptor = 0;
  Key connector_key;
  Key acceptor_key;
  Key record_key;  ///< What the keys of encrypted streams are made from.
};

enum class Attaching : uint8_t { kOutgoing, kIncoming };
/// For streams that this side opens (kOutgoing) or accepts (kIncoming) under `channel`.
Result<AttachKeys> attach_keys(const Channel& channel, Attaching direction);

struct AttachRequest {
  static constexpr size_t kBytes = 120;
  static constexpr uint32_t kMagic = 0x54544148;  // "HATT"

  Protection protection = Protection::kChecksum;
  SessionId session{};
  Member connector = 0;
  Member acceptor = 0;
  uint64_t epoch = 0;
  uint32_t group = 0;
  uint32_t stream = 0;
  Nonce nonce{};

  friend bool operator==(const AttachRequest&, const AttachRequest&) = default;
  /// "stream 2 of group 0, epoch 4, rank 1 to rank 0"
  std::string to_string() const;
};

std::array<std::byte, AttachRequest::kBytes> encode(const AttachRequest& request, const AttachKeys& keys);
/// Only its form; check_request() tells whether it is genuine.
Result<AttachRequest> decode_attach_request(std::span<const std::byte, AttachRequest::kBytes> bytes);
Status check_request(std::span<const std::byte, AttachRequest::kBytes> bytes, const AttachRequest& request,
                     const AttachKeys& keys);

struct AttachedStream {
  Socket socket;
  AttachRequest about;
  std::optional<StreamKeys> keys;  ///< Of an encrypted stream.
};

/// Sends `out`, then fills `in`.
struct AttachExchange {
  Socket socket;
  std::vector<std::byte> out;
  std::vector<std::byte> in;
  size_t sent = 0;
  size_t filled = 0;

  /// Whether both are done.
  Result<bool> move();
  Interest interest() const { return net::interest(sent == out.size(), sent < out.size()); }
  /// The next turn.
  void next(std::vector<std::byte> send, size_t receive);
};

/// The connecting side. Like a Channel: progress() when fd() is ready for interest(), until done().
class AttachConnector {
 public:
  /// `keys` are kOutgoing keys and must outlive this. Session, members and nonce of `about` are filled in.
  AttachConnector(Socket socket, const AttachKeys& keys, AttachRequest about, Deadline deadline);

  Status progress(Time now = Clock::now());
  bool done() const { return done_; }
  Interest interest() const { return exchange_.interest(); }
  int fd() const { return exchange_.socket.fd(); }
  Deadline deadline() const { return deadline_; }
  /// Once done(). The acceptor may still refuse the stream; it is then closed before anything arrives.
  AttachedStream take() { return {std::move(exchange_.socket), request_, std::move(stream_keys_)}; }

 private:
  AttachExchange exchange_;
  const AttachKeys& keys_;
  AttachRequest request_;
  std::optional<StreamKeys> stream_keys_;
  std::vector<std::byte> encoded_;
  Deadline deadline_;
  bool proof_sent_ = false;
  bool done_ = false;
};

/// Waits for it. `to` is where the peer listens.
Result<AttachedStream> attach(const Address& to, const AttachKeys& keys, const AttachRequest& about, Deadline deadline,
                              const SocketOptions& options = {});

/// The channels whose peers may attach streams here.
class AttachSessions {
 public:
  void add(AttachKeys keys);
  void remove(const SessionId& session);
  const AttachKeys* find(const SessionId& session) const;
  size_t size() const { return sessions_.size(); }

 private:
  std::map<SessionId, AttachKeys> sessions_;
};

/// Decides whether a genuine and fresh stream is welcome: its epoch, group and number.
using AdmitStream = std::function<Status(const AttachRequest& request)>;

/// The accepting side.
class AttachAcceptor {
 public:
  /// `received_before`: the first bytes of the request, already read. `sessions` must outlive this.
  AttachAcceptor(Socket socket, const AttachSessions& sessions, AdmitStream admit, Deadline deadline,
                 std::span<const std::byte> received_before = {});

  /// kUnauthenticated for whatever is not genuine and fresh, kTimeout, kPeerLost, kCorrupt, or what `admit` said.
  Status progress(Time now = Clock::now());
  bool done() const { return done_; }
  Interest interest() const { return exchange_.interest(); }
  int fd() const { return exchange_.socket.fd(); }
  Deadline deadline() const { return deadline_; }
  AttachedStream take() { return {std::move(exchange_.socket), request_, std::move(stream_keys_)}; }

 private:
  Status take_request();
  Status take_proof();

  AttachExchange exchange_;
  const AttachSessions* sessions_;
  AdmitStream admit_;
  Deadline deadline_;
  AttachRequest request_;
  std::optional<StreamKeys> stream_keys_;
  std::vector<std::byte> encoded_;
  Nonce nonce_{};
  bool challenged_ = false;
  bool done_ = false;
};

}  // namespace horo::net
