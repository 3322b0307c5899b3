// A large allreduce between two ranks that both add everything.
//
// Each copies its input into staging for the peer and adds the peer's to its own, straight into its output: no result
// passes through staging. The operation is decided when both have copied everything.
//
// *Abreast*: both copy a step, and add the one before while its input is still in cache.
//
// In place, the input is kept until the operation is decided, so that it can be put back: it lies in staging as a
// whole, or, where staging is a ring, it is copied elsewhere as the result replaces it.
//
// *In turns*, where contributions pass the caches by and a kernel copies and adds in one pass: of every two steps each
// rank leads with one, which it copies. The other one it follows with, when the peer's lies there, in one pass. And it
// catches up with the one that it led. So each input is read from afar once, and only half of it once more from the
// cache. A turn is to lead, to catch up with the turn before, and to follow, so that what a rank waits for was due a
// pass ago. (64 MiB in place between two cores of an Arm Neoverse N1: 9.5 ms abreast, 8.5 to 9.4 in turns. Nothing is
// gained on x86_64: docs/performance.md.)
//
// Contributions are counted by their *places*, the order in which a rank copies them: in turns, what it leads with,
// what it follows with, what it leads with next. Both take the other's in this order.
//
// Nobody waits for room in a ring of four places. Who copies place s abreast has seen the other copy s - 2, which had
// then taken s - 4. Who leads in turn t, with place 2t, has seen the other lead in turn t - 1, which had then followed
// in turn t - 2 and so taken place 2t - 4; who follows, with place 2t + 1, has seen it lead in turn t, and so take
// 2t - 2. Longer rings are faster, as a line that the peer has just read costs more to overwrite.
#pragma once

#include <array>
#include <cstdint>

#include "horo/collective/direct/allreduce.h"
#include "horo/collective/direct/descriptor.h"
#include "horo/collective/direct/protocol.h"

namespace horo::collective::direct {

class Pair {
 public:
  /// What fits into staging: elements from `first` on, `step` of them at a time, counted from `first_step` on. What
  /// this rank contributes lies in its staging from `staged_at` on.
  struct Round {
    uint64_t first, elements, step, first_step, staged_at;
  };
  static uint64_t steps(uint64_t elements, uint64_t step) { return (elements + 2 * step - 1) / (2 * step) * 2; }

  struct Kernels {
    kernel::CombineManyFn combine;
    kernel::CombineKeepingFn keeping;  ///< Null: there is none.
    bool in_turns;                     ///< Equal on both ranks; then both have `keeping`.
    kernel::Placement staged;
  };

  Pair(Protocol& protocol, const Call& call, const Reduction& reduction, const Descriptor& mine,
       const Descriptor& theirs, const Round& round, const Kernels& kernels);

  /// If it fails the caller's input is as it was.
  Status run();

 private:
  struct Range {
    uint64_t begin, count;
  };

  bool takes() const { return reduction_.out != nullptr; }
  bool in_place() const { return reduction_.out == reduction_.in; }
  /// At the beginning of staging, when a result takes its place.
  bool keeps_late() const { return in_place() && mine_.contributions == Holding::kRing; }
  Status abreast();
  Status in_turns();
  Status copy(uint64_t place, const Range& part) const;
  Status take(uint64_t place, const Range& part) const;
  Status follow(uint64_t place, const Range& part);
  void add_and_keep(uint64_t place, const Range& part) const;
  void restore() const;

  Status wait_for_peer(uint64_t place) const;
  Status say_copied(uint64_t place) const;
  Status say_taken() const;

  Range range(uint64_t step) const;
  uint64_t offset(const Descriptor& whose, uint64_t place, const Range& part) const;
  const std::byte* input(const Range& part) const { return reduction_.in + (round_.first + part.begin) * element_; }
  std::byte* output(const Range& part) const { return reduction_.out + (round_.first + part.begin) * element_; }
  std::byte* staged(uint64_t place, const Range& part) const;
  const std::byte* peers(uint64_t place, const Range& part) const;
  std::array<const std::byte*, 2> inputs(uint64_t place, const Range& part) const;  ///< In the order of ranks.
  uint64_t count_after(uint64_t place) const { return protocol_.count(round_.first_step + place + 1); }

  Protocol& protocol_;
  const Call& call_;
  const Reduction& reduction_;
  const Descriptor& mine_;
  const Descriptor& theirs_;
  const Round round_;
  const Kernels kernels_;
  const size_t element_;
  const uint64_t rank_;
  const int peer_;
  const uint64_t steps_;
  uint64_t kept_ = 0;  ///< All steps before this one are kept, whether overwritten or not; of others none is.
};

}  // namespace horo::collective::direct
