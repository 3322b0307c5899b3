// Large allreduces in shared memory.
#pragma once

#include "horo/collective/direct/allreduce.h"

namespace horo::collective::direct {

/// Two ranks: both add everything (pair.h).
///
/// More ranks or library buffers: member i owns slice i. Everybody puts the other slices into its staging step
/// by step, combines slice i of all members, in rank order and straight out of their staging, into its own staging, and
/// pulls the others' slices as they are done. Out of place, staging is a ring: of a few steps that stay in cache, or,
/// for tensors that no cache holds, one that is longer than the cache and written past it (stream.h says why). In
/// place, staging keeps what is overwritten until the operation is decided, so that a failure puts it back. Buffers
/// made by the library need no copy in: peers read them, and the owner's slice is reduced in place, or, where all
/// members have such buffers, written to all of them (push.h). Cost per member and byte of the tensor, n members:
/// (n-1)/n copied in, 1 read to reduce, 1/n written, 1 pulled.
Status allreduce_by_slices(Protocol& protocol, const Call& call, const Reduction& reduction);

}  // namespace horo::collective::direct
