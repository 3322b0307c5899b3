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
//   caller writes meanwhile: where there are such margins members meet again, with what lies there, and everybody adds
//   them for itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "horo/collective/direct/allreduce.h"
#include "horo/collective/direct/protocol.h"

namespace horo::collective::direct {

/// Where a member's input and output lie in its buffers.
struct Offer {
  uint64_t in = 0;
  uint64_t out = 0;
};

/// What this member can offer: nothing unless all members take the result, and its input and output lie in the
/// library's memory, in whole pages for the most part.
std::optional<Offer> offer_of(const Protocol& protocol, const Call& call, const Reduction& reduction);

/// After a meeting to which everybody has brought its offer. `combine` adds this reduction.
Status push(Protocol& protocol, const Call& call, const Reduction& reduction, std::span<const Offer> offers,
            kernel::CombineManyFn combine);

/// The end of an operation for which this member has made an offer: nobody writes there any more. Returns `status`,
/// which says then whether the caller's input is lost.
Status end_pushes(const Protocol& protocol, const Reduction& reduction, const Offer& mine, const Status& status);

}  // namespace horo::collective::direct
