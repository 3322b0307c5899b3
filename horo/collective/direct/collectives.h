// All collectives of a group whose members share memory.
#pragma once

#include <cstddef>

#include "horo/collective/direct/protocol.h"
#include "horo/collective/operation.h"

namespace horo::collective::direct {

/// Runs one operation (already validated). `in` and `out` as operation.h describes; null where there is nothing.
/// Ends as allreduce() does (allreduce.h).
Status run(Protocol& protocol, const Call& call, const Operation& operation, const std::byte* in, std::byte* out);

}  // namespace horo::collective::direct
