// Data that flows through shared memory in steps, from members that contribute to members that take.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "horo/collective/direct/protocol.h"

namespace horo::collective::direct {

/// What one member gives and takes in an operation. Each contributor's data is cut into steps: step w of a contribution
/// is piece w of its one block for everybody, or of each of its blocks, one per taker.
struct Flow {
  /// One block that everybody reads, or a block for each member; empty when this member contributes nothing.
  std::vector<std::span<const std::byte>> give;
  bool per_taker = false;
  bool for_others = true;  ///< Somebody else takes a part of it.
  uint64_t piece = 0;      ///< Bytes of one, equal on all members; 0: of a whole step.
  /// How many bytes each member gives: of its block for everybody, or of its block for this member. Zero: nothing.
  std::vector<uint64_t> take;
  /// Which members contribute at all (equal everywhere).
  std::vector<bool> contributes;
  /// Where each member's block lands, the own one too; all empty where consume() makes something else of them.
  std::vector<std::byte*> to;
  /// Called once per step with where piece [offset, offset + piece) of every taken block lies (null beyond its end).
  /// `own` pieces are handed over as well, straight from `give`.
  std::function<void(uint64_t offset, std::span<const std::byte* const> pieces)> consume;
  /// Where each member's block for this one begins in what that member gives, if it may be read there. Empty, on all
  /// members alike, where it may not.
  std::vector<uint64_t> begins;
};

/// Bytes of a piece of a whole step.
uint64_t piece_bytes(const Protocol& protocol, bool per_taker);
/// Of one of many, where what is given is `bytes` long and others have nothing to do until the first one is there. (A
/// broadcast of 256 KiB between two Skylake cores: 22 to 24 us, against 39 to 41 in one piece; of 1 MiB 102, against
/// 115 in whole steps.)
uint64_t short_piece_bytes(const Protocol& protocol, uint64_t bytes);

/// Runs the flow after meet(). On success every contribution is complete (decided) and everything is taken.
///
/// Blocks of medium size may be read where their givers' callers keep them, if all members can read each other's
/// memory: one copy, by the kernel, instead of two. Nobody leaves before everybody has read everything, which decides
/// the operation: until then it needs all givers alive. (An alltoall of 1 MiB between two Sapphire Rapids cores: 77 us,
/// against 104 through rings.)
///
/// Else a contributor copies pieces into a ring in its staging and uses a slot again when everybody is past it. A block
/// that lies in the contributor's segment already is read where it is. Per step and taker one wait for each
/// contributor; nothing is copied twice.
///
/// Contributions take a ring of a few steps that stays in cache; results that no cache holds pass the caches by. (A
/// broadcast of 64 MiB between two Emerald Rapids cores: 5.5 ms, against 7.6 if contributions go past the caches, too,
/// through a ring that is longer than they are. There is such a ring where it is the quicker way, see
/// Thresholds::far_rings.)
class Stream {
 public:
  Stream(Protocol& protocol, const Call& call, const Flow& flow);

  /// Goes into the arrival's payload: pass it to meet() before run().
  struct Descriptor {
    uint64_t offset = 0;   ///< Of the ring, or of the block itself, in the segment.
    uint64_t ring = 1;     ///< Steps of the ring; every contributor's own choice.
    uint64_t address = 0;  ///< In its own process, of what the member gives.
    uint8_t in_place = 0;  ///< 1: the block itself.
    uint8_t reads = 0;     ///< 1: can read the others' memory, is for it, and what it gives can be read where it is.
  };
  static_assert(sizeof(Descriptor) <= transport::kInlineBytes);
  /// Whole steps of a short ring; of shorter ones it holds as many bytes. Two are enough not to wait for oneself; four
  /// let members drift apart a little.
  static constexpr uint64_t kShortRing = 4;

  /// Commits staging, arrives, meets the others.
  Status meet();
  Status run();

 private:
  Status choose_ring(Descriptor& mine);
  bool votes_for_reading() const;
  Status check(const Descriptor& theirs, int member) const;
  Status contribute(uint64_t step);
  Status take(uint64_t step);
  void land(int member, uint64_t step);
  Status finish();
  Status read();
  uint64_t steps_of(uint64_t bytes) const { return (bytes + piece_ - 1) / piece_; }
  const std::byte* piece(int member, uint64_t step) const;
  uint64_t count(uint64_t step) const { return protocol_.count(step); }
  transport::MemberWords& words(int member) const { return protocol_.words(member); }

  Protocol& protocol_;
  const Call& call_;
  const Flow& flow_;
  const uint64_t piece_;
  const uint64_t slot_;  ///< Bytes of one step in the ring.
  uint64_t give_steps_ = 0;
  uint64_t take_steps_ = 0;
  uint64_t given_ = 0;                                        ///< Bytes, to all.
  uint64_t taken_ = 0;                                        ///< From all.
  kernel::Placement placement_ = kernel::Placement::kCached;  ///< Of the ring.
  kernel::Placement landing_;                                 ///< Of what lands.
  bool reads_ = false;                                        ///< All members read, equal everywhere.
  std::vector<Descriptor> descriptors_;
  std::vector<const std::byte*> pieces_;
};

}  // namespace horo::collective::direct
