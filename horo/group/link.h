// The connection to one peer: its control channel and, on the same host, its memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "horo/base/deadline.h"
#include "horo/base/status.h"
#include "horo/group/memory.h"
#include "horo/net/address.h"
#include "horo/net/attach.h"
#include "horo/net/channel.h"
#include "horo/net/fd.h"
#include "horo/transport/process.h"
#include "horo/transport/shm/segment.h"

namespace horo::group {

/// Types of frames on control channels. The values travel on the wire.
enum class ControlType : uint8_t {
  kDescriptors = 1,  ///< Descriptors follow on the socket: segment, buffers, control region, process.
  kMembership = 2,   ///< rendezvous::Message
  kProbe = 3,        ///< "Does your progress thread run?"
  kProbeAnswer = 4,
  kGoodbye = 5,        ///< The sender leaves in order.
  kAbandon = 6,        ///< The sender gives up a group; the payload says why.
  kServe = 7,          ///< A piece of a retained result, for a member that lacks it.
  kJoinGroup = 8,      ///< To the first member of a new group.
  kGroupReady = 9,     ///< From the first member, when all have joined.
  kLeaveGroup = 10,    ///< The sender comes to no operation of a group after `operation`; it may still revoke its page.
  kLetters = 11,       ///< Bytes of the stream of letters to this member of a group, from `offset` on.
  kLettersTaken = 12,  ///< The sender has taken that stream up to `offset`.
  kWithdraw = 13,      ///< To the first member of a new group: the sender's kJoinGroup, which counts no more.
  kAsk = 14,           ///< rendezvous::Message: "I do not hear those that are lost in it. May I evict them?"
  kConsent = 15,       ///< The answer; operation 1: yes, 0: no.
  kEndGroup = 16,      ///< As kLeaveGroup, and the sender uses the group for no operation of its own any more.
};

/// What a peer on the same host has passed to us.
struct PeerMemory {
  transport::shm::Mapping segment;
  transport::shm::Mapping buffers;
  transport::shm::Mapping region;
  net::UniqueFd process;  ///< pidfd: readable when the peer has ended, whoever still holds its sockets.
  /// What the peer keeps for itself, if this process may read it.
  std::optional<transport::Process> unshared;
  RegionHeader& header() const { return *reinterpret_cast<RegionHeader*>(region.memory().data()); }
};

struct Link {
  int rank = -1;
  net::Channel channel;
  net::Protection protection = net::Protection::kChecksum;  ///< Of data streams that this rank opens to the peer.
  std::optional<PeerMemory> memory;                         ///< Set when memory is shared.
  std::unique_ptr<net::AttachKeys> outgoing;
  std::unique_ptr<net::AttachKeys> incoming;
  bool said_goodbye = false;
  bool process_ended = false;                    ///< Certainly.
  net::Interest watched = net::Interest::kNone;  ///< What the poller was told.
};

/// Where a rank is and how it is reached.
struct PeerAddress {
  int rank = 0;
  std::string host;  ///< Equal for ranks that may share memory.
  net::Address tcp;
  net::Address local;  ///< Unix socket; none when the rank shares no memory.
  std::string description;
};

/// Who we are to our peers.
struct Self {
  int rank = 0;
  std::string job;
  std::shared_ptr<const net::Tls> tls;
  std::shared_ptr<const net::Key> key;
  Memory* memory = nullptr;  ///< Null: this rank shares no memory.
  bool encrypt = false;      ///< HORO_ENCRYPT: data streams are.
  bool reads_peers = false;  ///< HORO_READ_PEERS: tries to read what peers on this host keep for themselves.

  net::ChannelOptions channel_options() const;
};

/// Connects to a peer of lower rank where its card says, over the Unix socket when both are on one host and share
/// memory. Waits.
Result<Link> connect_link(const Self& self, const PeerAddress& mine, const PeerAddress& peer, Deadline deadline);

/// The other end, with a channel that a listener has authenticated. Waits for a Unix peer's descriptors, briefly.
Result<Link> accept_link(const Self& self, net::Channel channel, Deadline deadline);

}  // namespace horo::group
