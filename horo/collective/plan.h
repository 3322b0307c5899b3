// A plan: everything one member does in a collective operation, as data.
//
// A plan is a list of phases. The transfers of a phase run concurrently; its local work runs in order while they are in
// flight and touches only what earlier phases completed. A message that is sent in phase t of its sender is received in
// phase t of its receiver, so that waiting in phase t depends only on peers finishing phases before t: there is no
// deadlock, whatever the transport buffers. (Drafts number phases globally; a finished plan leaves out those in which
// this member has nothing to do.)
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "horo/base/dtype.h"
#include "horo/kernel/reduce.h"

namespace horo::collective {

enum class Buffer : uint8_t {
  kInput,    ///< The caller's, only ever read.
  kWork,     ///< Staging that holds this member's complete result at the end.
  kScratch,  ///< Forgotten afterwards.
};

/// An element of a buffer.
struct Place {
  Buffer buffer = Buffer::kWork;
  uint64_t offset = 0;
  Place at(uint64_t further) const { return {buffer, offset + further}; }
  friend bool operator==(const Place&, const Place&) = default;
};

/// A run of elements of a buffer.
struct Range {
  Place place;
  uint64_t count = 0;
};

enum class TransferAction : uint8_t {
  kSend,
  kReceive,
  kReceiveCombine,  ///< range = with op received
};

struct Transfer {
  TransferAction action = TransferAction::kSend;
  int peer = 0;
  Range range;
  Place with;
  bool keeps = false;  ///< A receive: nothing is written to its range, which is in work, before.
};

enum class WorkAction : uint8_t {
  kCopy,         ///< into = source
  kCombine,      ///< into = source 0 op source 1 op ..., rounded once
  kScaleBefore,  ///< into = source * prescale
  kScaleAfter,   ///< into = source * postscale
};

struct Work {
  WorkAction action = WorkAction::kCopy;
  bool scale_after = false;  ///< kCombine: postscale in the same pass.
  Range into;
  uint32_t first_source = 0;
  uint32_t sources = 0;
};

struct Phase {
  uint32_t transfers_end = 0;
  uint32_t works_end = 0;
};

/// A part of the result, and where it belongs: output[offset ...] = from.
struct Delivery {
  Range from;
  uint64_t offset = 0;
  /// From this phase on (which may be the end of the plan) nothing is written there any more: it may be delivered while
  /// the rest is on its way.
  uint32_t phase = 0;
};

/// What the elements are and what is done to them.
struct Arithmetic {
  DType dtype = DType::kByte;
  ReduceOp op = ReduceOp::kSum;
  kernel::Scaling before;
  kernel::Scaling after;
};

/// A part of work that local work is the first to write to, in `phase`, or a receive that does not keep.
struct Overwrite {
  Range range;
  uint32_t phase = 0;
};

/// Immutable once finished; holds no pointer, so that it can be kept and run again on other buffers.
struct Plan {
  std::string_view algorithm;
  int rank = 0;
  Arithmetic arithmetic;
  uint64_t work_count = 0;     ///< Elements of staging it needs.
  uint64_t scratch_count = 0;  ///< Elements of scratch it needs.
  /// The result is not replicated: the last phases are a barrier that proves all members complete before delivery.
  bool needs_closing_barrier = false;
  std::vector<Phase> phases;
  std::vector<Transfer> transfers;
  std::vector<Work> works;
  std::vector<Place> sources;
  std::vector<Delivery> deliveries;   ///< In the order of their phases.
  std::vector<Overwrite> overwrites;  ///< In the order of their phases.

  size_t element_bytes() const { return size_of(arithmetic.dtype); }
  uint64_t work_bytes() const { return work_count * element_bytes(); }
  uint64_t scratch_bytes() const { return scratch_count * element_bytes(); }
  std::span<const Transfer> transfers_of(size_t phase) const;
  std::span<const Work> works_of(size_t phase) const;
  std::span<const Place> sources_of(const Work& work) const;
};

/// A plan being written: transfers and work can be added to any phase, in any order of phases. Within a phase, both
/// ends of a wire must add their messages in the same order. Empty ranges are left out.
class Draft {
 public:
  void send(size_t phase, int peer, Range from);
  void receive(size_t phase, int peer, Range into);
  void receive_combine(size_t phase, int peer, Range into, Place with);
  /// A message even when it is empty, so that the two ends compare what they believe.
  void send_always(size_t phase, int peer, Range from);
  void receive_always(size_t phase, int peer, Range into);

  void copy(size_t phase, Range into, Place from);
  void combine(size_t phase, Range into, std::span<const Place> sources, bool scale_after);
  void combine(size_t phase, Range into, Place first, Place second);
  void scale_before(size_t phase, Range into, Place from);
  void scale_after(size_t phase, Range into, Place from);

  /// The number of phases written so far: the first free one.
  size_t end() const { return phases_.size(); }
  /// Takes `count` elements of scratch.
  Place scratch(uint64_t count);
  /// The result: it becomes the output as a whole. finish() finds out which parts of it are complete when.
  void deliver(Range from) { result_ = from; }

  /// Drops phases without content; counts work and scratch.
  Plan finish(const Arithmetic& arithmetic) &&;

 private:
  struct Content {
    std::vector<Transfer> transfers;
    std::vector<Work> works;
  };
  Content& content(size_t phase);
  void work(size_t phase, WorkAction action, Range into, std::span<const Place> sources, bool scale_after);

  std::vector<Content> phases_;
  std::vector<Place> sources_;
  Range result_;
  uint64_t scratch_count_ = 0;
};

}  // namespace horo::collective
