// Allreduce in buffers of the library: every sum is made once and written where all members want it.
//
// Member i adds slice i of everybody's input and writes the sums to everybody's output: one byte read and one written
// for each byte of the tensor, and nothing is copied. Two members write the memory of a third here, which they do
// nowhere else. What keeps that safe:
//
// - Nobody writes before all members have come to the operation, nor after it has advanced its word to the end. An
//   operation that succeeds has seen everybody's word there, so nobody writes any more when it returns.
// - One that fails may leave a writer behind: a member that is dead or frozen, or one that has not noticed yet. So
//   the caller's pages are taken away from all peers before the call returns (Buffers::withdraw()).
// - Only whole pages can be taken away. What lies beside them in a first or last page may be another tensor, which the
//   caller writes meanwhile: those margins are brought to the meeting, and everybody adds them for itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "horo/collective/direct/allreduce.h"
#include "horo/collective/direct/protocol.h"

namespace horo::collective::direct {

/// Bytes of a buffer before its first whole page, and after its last.
struct Margins {
  uint64_t head = 0;
  uint64_t tail = 0;
};
Margins margins(uint64_t offset, uint64_t bytes, size_t page);

/// Whether a result of `bytes` at `offset` in this member's buffers can be written by others.
bool can_push(const Protocol& protocol, const Reduction& reduction, uint64_t offset);

/// Before the meeting: makes what may be somebody's margins ready for everybody.
void bring_margins(Protocol& protocol, const Reduction& reduction);

/// Where a member's input and output lie, as this member sees them.
struct Place {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  Margins margins;
};

/// After the meeting, with everybody's places.
Status push(Protocol& protocol, const Call& call, const Reduction& reduction, std::span<const Place> places,
            kernel::CombineManyFn combine);

/// The end of an operation in which this member has offered its output, at `offset`, to the others: nobody writes there
/// any more. Returns `status`, which says then whether the caller's input is lost.
Status end_pushes(const Protocol& protocol, const Reduction& reduction, uint64_t offset, const Status& status);

}  // namespace horo::collective::direct
