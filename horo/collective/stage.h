// Building blocks of plans: what several algorithms have in common.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "horo/collective/cut.h"
#include "horo/collective/operation.h"
#include "horo/collective/plan.h"

namespace horo::collective {

/// Some members of the group, as one of them sees it. The order is the order of combination.
struct Team {
  std::vector<int> ranks;
  size_t self = 0;

  static Team everyone(const Shape& shape, int rank);
  size_t size() const { return ranks.size(); }
  /// Member `step` places after (or, negative, before) this one, around the circle.
  size_t around(int64_t step) const {
    auto size = static_cast<int64_t>(ranks.size());
    return static_cast<size_t>(((static_cast<int64_t>(self) + step) % size + size) % size);
  }
};

/// Whether a receive can be fused with the only combination there is, without a change of bits: see fused_reduce().
bool can_fuse(const Arithmetic& arithmetic);

/// One reduce-scatter: member j of the team ends with run parts[j] of everybody's source, combined in team order.
struct ReduceScatter {
  Place source;
  std::span<const Run> parts;
  Place into;        ///< Where this member's part goes.
  Place slots;       ///< Scratch for team size - 1 parts; unused when fused.
  bool last = true;  ///< Whether this completes the reduction, so that the result is scaled.
};

/// Everybody sends to everybody at once, peers in rotated order (to self + 1, from self - 1, ...). Returns the phase
/// from which on the result can be sent. With two members the receive is fused with the combination where the bits
/// allow.
size_t exchange_reduce(Draft& draft, size_t phase, const Team& team, const ReduceScatter& what,
                       const Arithmetic& arithmetic);
/// Phases that exchange_reduce() takes.
size_t exchange_reduce_phases(size_t team_size, const Arithmetic& arithmetic, bool last);

/// Scratch for exchange_reduce() of `segments` segments of a part, one after the other: two sets of slots, used in
/// turn.
class Slots {
 public:
  Slots(Draft& draft, const Team& team, const Arithmetic& arithmetic, uint64_t part, uint64_t segments);
  Place of(uint64_t segment) const { return base_.at(segment % 2 * set_); }

 private:
  Place base_;
  uint64_t set_ = 0;
};

/// Everybody sends parts[self] of `base` to everybody and receives the other parts. One phase.
void exchange_parts(Draft& draft, size_t phase, const Team& team, Place base, std::span<const Run> parts);

/// Everybody sends all of `source` to everybody, and combines all of them. Two phases.
struct Flood {
  Range source;
  Place into;
  Place slots;  ///< Scratch for team size - 1 times source.count.
  bool last = true;
};
size_t flood_reduce(Draft& draft, size_t phase, const Team& team, const Flood& what);

/// Dissemination barrier (Hensgen, Finkel, Manber 1988): in round k a member signals the one 2^k places after it.
void barrier(Draft& draft, size_t phase, const Team& team);

/// Rounds of a dissemination: the logarithm of `members` to base 2, rounded up.
uint64_t log2_ceil(uint64_t members);

/// Runs of the given lengths, one after the other.
std::vector<Run> runs_of(std::span<const uint64_t> counts);
/// Segment `segment` of `segments` of each part of `cut`.
std::vector<Run> segment_of(const Cut& cut, uint64_t segment, uint64_t segments);
std::vector<Run> segment_of(std::span<const Run> parts, uint64_t segment, uint64_t segments);

}  // namespace horo::collective
