// Which machine a rank runs on, and what it tells the others about itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "horo/base/status.h"
#include "horo/base/system.h"

namespace horo::rendezvous {

/// Equal where processes may share memory and abstract Unix sockets: the same boot of the same kernel and the same
/// network namespace. The boot id alone is equal in all containers of a machine. That two ranks really share memory is
/// proven later, by a nonce read through a passed memfd.
struct HostId {
  std::string text;
  friend bool operator==(const HostId&, const HostId&) = default;
};

/// `override_text` (HORO_HOST_ID) wins when it is not empty. Where the system does not tell (kNotFound), two ranks must
/// not be taken for neighbours: callers fall back to lonely_host_id().
Result<HostId> find_host_id(const System& system, const std::string& override_text);
/// Equal to no other.
HostId lonely_host_id();

/// What one rank publishes when it joins.
struct PeerCard {
  static constexpr size_t kMostBytes = 4096;
  static constexpr size_t kMostText = 255;
  static constexpr size_t kMostAddresses = 8;

  int rank = 0;
  int size = 1;
  HostId host;
  std::string host_name;
  int64_t pid = 0;
  int cores = 1;                       ///< Usable by the process.
  std::vector<std::string> addresses;  ///< As net::Address::parse() reads them, best first.
  std::string architecture;
  std::string build;
  uint64_t incarnation = 0;  ///< Random: tells a process from another with the same rank.

  friend bool operator==(const PeerCard&, const PeerCard&) = default;
  /// "rank 3 (pid 12 on node7)"
  std::string to_string() const;
};

/// The card of this process, without addresses. Texts that are too long are cut.
PeerCard local_card(int rank, int size, HostId host);

std::vector<std::byte> encode(const PeerCard& card);
/// kCorrupt for what is no card, or one of a rank beyond its size.
Result<PeerCard> decode_card(std::span<const std::byte> bytes);

}  // namespace horo::rendezvous
