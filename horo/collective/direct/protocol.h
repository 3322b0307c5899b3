// How members meet at an operation in shared memory.
//
// Words used here. A *contribution* is what a member gives to an operation, lying in its segment: copied into its
// staging area, or already there because the caller's buffer was made by the library. *Arrival* at a meeting carries
// the signature of the operation and a small payload. An operation is *decided* when its outcome no longer depends on
// anybody's life: everything that anybody still needs lies finished in mapped memory, which outlives its owner.
//
// Every operation waits for the arrival of all members, rooted ones too. So all members compare all signatures and a
// mismatch fails the operation everywhere; and arrival at meeting k + 1 proves that its owner is done with k, which is
// what allows staging to be used again.
//
// A wait that ends because the group was revoked always means that the operation is not decided: members wait only for
// words that the decision needs, and a frozen word stays short for everybody. So outcomes are uniform without a vote.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "horo/base/deadline.h"
#include "horo/base/status.h"
#include "horo/base/system.h"
#include "horo/kernel/reduce.h"
#include "horo/transport/signature.h"
#include "horo/transport/space.h"

namespace horo::collective::direct {

using transport::Signature;
using transport::Space;
using transport::Word;

struct Call {
  uint64_t number = 0;  ///< Of the operation in its group, for messages.
  Signature signature;
  Deadline deadline;
};

#ifdef __aarch64__
inline constexpr size_t kPairStepBytes = 64 * 1024;
inline constexpr bool kFarRings = true;
inline constexpr size_t kReads = 0;
#else
inline constexpr size_t kPairStepBytes = 128 * 1024;
inline constexpr bool kFarRings = false;
inline constexpr size_t kReads = 1;
#endif

/// Sizes at which the algorithm changes. Equal on all members (they are part of the selector's table), but for
/// cache_bytes, streams and far_rings, which only decide how a member copies and how long its own ring is, and
/// read_bytes, which says what it votes for.
struct Thresholds {
  size_t slot_bytes = 256 * 1024;  ///< Up to this, one exchange; everybody reduces everything (2 ranks).
  /// The same for more than 2 ranks, and for 2 that both have buffers of the library.
  size_t slot_bytes_many = 32 * 1024;
  /// Up to this, one exchange where one of two gives, or takes, all of it. Beyond, both copy at once, in steps.
  size_t pair_one_way_bytes = 128 * 1024;
  size_t step_bytes = 256 * 1024;  ///< How much of a slice is copied, reduced and pulled at a time.
  /// The same of a broadcast, at the least: a sixteenth of it, up to step_bytes.
  size_t least_step_bytes = 32 * 1024;
  /// The same where two ranks add everything: about a sixteenth of a core's own cache, where each piece of the own
  /// input is read a second time.
  size_t pair_step_bytes = kPairStepBytes;
  size_t cache_bytes = kernel::cache_bytes();
  size_t page_bytes = page_size();   ///< What a caller's buffer can be taken away from peers by.
  bool streams = kernel::streams();  ///< Whether what no cache holds passes the caches by.
  /// Whether contributions do so, too, and then the ring that they take is longer than the cache. Else they stay in
  /// cache in a short one, which spares memory a quarter of the traffic (docs/performance.md has both).
  bool far_rings = kFarRings;
  /// What has one taker each, and is up to this for all members together, is read where its givers' callers keep it.
  /// The kernel, which copies it then, neither asks for lines nor passes the caches by: beyond, two copies take less
  /// time than that one.
  size_t read_bytes = kReads * (kernel::streams() ? 16 : 4) * kernel::cache_bytes();

  /// From here on results pass the cache by.
  size_t stream_bytes() const { return streams ? kernel::kStreamedCaches * cache_bytes : SIZE_MAX; }
  /// From here on an allreduce finds its tensor in no cache.
  size_t far_bytes() const { return streams ? kFarCaches * cache_bytes : SIZE_MAX; }
  size_t far_ring_bytes() const { return kFarCaches * cache_bytes; }
  /// Of what stays in cache.
  kernel::Placement near() const { return streams ? kernel::Placement::kCached : kernel::Placement::kAsked; }

 private:
  static constexpr size_t kFarCaches = 4;
};

/// One member's side. One call at a time (the holder of the group's execution token).
class Protocol {
 public:
  Protocol(Space space, const Thresholds& thresholds);

  const Space& space() const { return space_; }
  /// How the calls that follow wait.
  void set_wait_policy(const transport::WaitPolicy& policy) { space_.policy = policy; }
  const Thresholds& thresholds() const { return thresholds_; }
  int rank() const { return space_.rank; }
  int size() const { return space_.size; }

  /// Posts arrival with `payload` (up to kInlineBytes), waits for everybody's and compares signatures. Most operations
  /// meet once, some twice; members count meetings alike, because one that fails fails on all of them.
  Status meet(const Call& call, std::span<const std::byte> payload);
  /// What `member` brought to the last meeting. Valid until this member comes to the next one but one.
  const std::byte* payload(int member) const { return arrival(member).payload.data(); }
  /// Step `step` after the last meeting, as the progress words count.
  uint64_t count(uint64_t step) const { return transport::progress_count(meeting_, step); }

  /// slot_bytes that go with the arrival at the next meeting.
  std::byte* next_slot() const { return space_.own.data() + slot_offset(meeting_ + 1); }
  /// What `member` put there for the last meeting. Valid as its payload is.
  const std::byte* slot(int member) const { return space_.areas[static_cast<size_t>(member)] + slot_offset(meeting_); }
  /// Of the last meeting. When the group is revoked the answer is final, and the same to everybody.
  bool all_came() const;

  /// meet() that carries up to slot_bytes: `mine`, and `rest` after it. No member's contribution is longer than
  /// `bytes`, which is equal everywhere.
  Status exchange(const Call& call, std::span<const std::byte> mine, size_t bytes,
                  std::span<const std::byte> rest = {});
  /// What `member` gave to exchange().
  const std::byte* contribution(int member, size_t bytes) const;

  /// Arrives only to say that this rank cannot take part. Fails operation `call.number` on all members with `why`.
  Status refuse(const Call& call, const Status& why);

  /// What `member` says of its memory cannot be.
  Status lies_outside(const Call& call, int member) const;

  /// What `member` keeps for itself is not to be had, `error` says why. Ends the group.
  Status cannot_read(const Call& call, int member, int error) const;

  Status advance(const Call& call, Word& word, uint64_t count) const;
  Status wait_for(const Call& call, int member, Word& word, uint64_t count) const;

  transport::MemberWords& words(int member) const { return space_.page[member]; }

  /// Staging for large operations: what lies behind the exchange slots.
  std::span<std::byte> staging() const { return space_.own.subspan(slots_bytes()); }
  /// Makes the first `bytes` of staging() real.
  Status commit(size_t bytes);
  /// Four, though two would be safe: overwriting what a peer has just read costs twice as much as something it read
  /// a while ago.
  static constexpr size_t kSlots = 4;
  size_t slots_bytes() const { return kSlots * thresholds_.slot_bytes; }

  /// Where `memory` lies in this member's buffers, if it does and peers see it there.
  std::optional<uint64_t> offset_in_buffers(const std::byte* memory, size_t bytes) const;

 private:
  size_t slot_offset(uint64_t meeting) const { return meeting % kSlots * thresholds_.slot_bytes; }
  transport::Arrival& arrival(int member) const { return words(member).arrival[meeting_ & 1]; }
  Status gather(const Call& call, std::span<const std::byte> payload);
  Status compare(const Call& call) const;
  Status stopped(const Call& call) const;

  Space space_;
  Thresholds thresholds_;
  uint64_t meeting_ = 0;
  size_t committed_ = 0;
  mutable std::optional<Status> late_;  ///< Why this member has ended the group, if it has.
};

}  // namespace horo::collective::direct
