// Who speaks to whom, and what about: the identity that a connection's pre-shared key is bound to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "horo/base/status.h"
#include "horo/net/key.h"

namespace horo::net {

/// A participant of the job: its rank, or one of the names below.
using Member = uint64_t;
/// The store where ranks meet.
inline constexpr Member kStoreMember = ~uint64_t{0};
/// For one who has no rank yet: chosen at random, never a rank.
Member anonymous_member();
/// "rank 3", "the store", "an unranked process".
std::string member_text(Member member);

/// The values travel on the wire.
enum class Purpose : uint8_t {
  kControl = 1,     ///< Between two ranks.
  kRendezvous = 2,  ///< Between a process and the store.
  kLauncher = 3,    ///< Between an agent and the launcher.
};

/// Travels in the clear in the first message of the TLS handshake and is authenticated by it: the pre-shared key is
/// derived from the job's key and these very bytes, so a proof made for one pair, direction, epoch or purpose is worth
/// nothing for another.
struct Identity {
  static constexpr size_t kMostBytes = 160;
  static constexpr size_t kMostJobBytes = 64;

  std::string job;
  Purpose purpose = Purpose::kControl;
  uint64_t epoch = 0;
  Member connector = 0;
  Member acceptor = 0;

  friend bool operator==(const Identity&, const Identity&) = default;
  /// "rank 1 to rank 0, epoch 4, job 'x'"
  std::string to_string() const;
};

/// kInvalidArgument for a job name that is too long, or a connection to oneself.
Result<std::vector<std::byte>> encode(const Identity& identity);
/// kCorrupt for anything that encode() does not write.
Result<Identity> decode_identity(std::span<const std::byte> bytes);

/// Whether a connection that claims `claimed` is meant for `self`, a member of `job`. A claim by oneself is a
/// reflection: somebody sends our own connection back to us. The epoch is compared after the handshake (Hello), when
/// the peer's word can be trusted and the answer reaches the right one.
Status check_addressed(const Identity& claimed, const std::string& job, Member self);

/// The TLS pre-shared key of one connection.
Result<Key> derive_psk(const Key& job_key, std::span<const std::byte> encoded_identity);

}  // namespace horo::net
