// Allreduce in shared memory: small ones in one exchange, large ones by slices.
#pragma once

#include <vector>

#include "horo/collective/direct/protocol.h"
#include "horo/kernel/reduce.h"

namespace horo::collective::direct {

struct Reduction {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;  ///< May be `in`, otherwise the two do not overlap. Null: this member wants no result.
  uint64_t count = 0;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  kernel::Scaling scaling;
};

/// Ends in success, or in kMismatch and kUnavailable (on all members; the group stays usable), kStopped (revoked before
/// the operation was decided; the group layer knows why) or kTimeout. Unless the status says so, `in` is as it was.
///
/// Up to slot_bytes: everybody publishes all of its input and combines everything itself, in rank order. Above
/// slot_bytes_many, where all members have buffers of the library, each adds a part of them there (push.h). Else by
/// slices (sliced.h).
Status allreduce(Protocol& protocol, const Call& call, const Reduction& reduction);

}  // namespace horo::collective::direct
