// What members tell each other when one of them is gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "horo/base/status.h"
#include "horo/rendezvous/lost_set.h"

namespace horo::rendezvous {

/// How far one rank came in one group. The numbers count the group's operations from 1; 0 means none.
struct Report {
  uint64_t group = 0;
  uint64_t completed = 0;  ///< The last operation whose caller was told of success.
  uint64_t held = 0;       ///< The last operation whose whole result is here, told or not; never below `completed`.
  friend bool operator==(const Report&, const Report&) = default;
};

/// The values travel on the wire.
enum class MessageKind : uint8_t {
  kRevoke = 0,  ///< "These are gone." To everyone, and to those who are evicted by it.
  kFlush = 1,   ///< "My groups have stopped; this is how far they came."
  kStable = 2,  ///< "I hold everything that was decided to succeed."
};
inline constexpr int kMessageKindCount = 3;

struct Message {
  MessageKind kind = MessageKind::kRevoke;
  uint64_t base_epoch = 0;      ///< Of the membership that both sides belong to.
  LostSet lost;                 ///< All that the sender knows to be gone: the view it speaks about.
  std::vector<Report> reports;  ///< kFlush only: the sender's groups with a lost member, sorted by group.

  friend bool operator==(const Message&, const Message&) = default;
};

/// Groups that one rank can have at once; more would not fit into a Flush.
inline constexpr size_t kMostGroups = 16384;

/// kind u8, base_epoch u64, losses (rank u32, reason u8), reports (group, completed, held: u64 each).
std::vector<std::byte> encode(const Message& message);
/// kCorrupt for anything that encode() does not write in a job of `size` ranks.
Result<Message> decode_message(std::span<const std::byte> bytes, int size);

}  // namespace horo::rendezvous
