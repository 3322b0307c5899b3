// Large allreduces in shared memory.
#pragma once

#include "horo/collective/direct/allreduce.h"

namespace horo::collective::direct {

/// Two ranks: both add everything (pair.h).
///
/// More ranks or library buffers: member i owns slice i. Everybody puts the other slices into its staging step
/// by step, combines slice i of all members, in rank order and straight out of their staging, into its own staging, and
/// pulls the others' slices as they are done. Out of place, staging is a ring of a few steps that stay in cache (or see
/// Thresholds::far_rings). In place, staging keeps what is overwritten until the operation is decided, so that a
/// failure puts it back: small tensors lie there whole, for the others to read; of those that no cache holds the others
/// read a ring, and what a result replaces passes the caches by on its way to where it is kept. Buffers made by the
/// library need no copy in: peers read them, and the owner's slice is reduced in place, or, where all members have such
/// buffers, written to all of them (push.h). Cost per member and byte of the tensor, n members: (n-1)/n copied in, 1
/// read to reduce, 1/n written, 1 pulled.
Status allreduce_by_slices(Protocol& protocol, const Call& call, const Reduction& reduction);

/// What staging should have room for beside the largest tensor that it keeps whole.
size_t ring_room(const Thresholds& thresholds, int members);

}  // namespace horo::collective::direct
