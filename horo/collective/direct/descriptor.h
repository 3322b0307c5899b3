// What members tell each other of a large allreduce when they meet.
#pragma once

#include <cstdint>

#include "horo/transport/page.h"

namespace horo::collective::direct {

/// How a member holds its contributions, or its results, while others read them.
enum class Holding : uint8_t {
  kRing,     ///< The last steps, in staging.
  kWhole,    ///< All of the round in staging, in the caller's layout.
  kCallers,  ///< The caller's own buffer, which lies among the library's.
};

/// What the arrival at a large operation carries: where peers find this member's data, as offsets in its segment,
/// or in its buffers.
struct Descriptor {
  uint64_t contribution = 0;
  uint64_t result = 0;
  uint64_t ring = 1;       ///< Steps of the ring; every member's own choice.
  uint64_t pair_ring = 1;  ///< The same if it is one of a pair.
  Holding contributions = Holding::kRing;
  Holding results = Holding::kRing;
  uint8_t takes_pushes = 0;  ///< Others may write its result.
  uint8_t adds_fast = 1;     ///< Adding everything takes this member less time than fetching half of it added.
  uint8_t keeps = 0;         ///< It contributes and adds in one pass.
};
static_assert(sizeof(Descriptor) <= transport::kInlineBytes);

}  // namespace horo::collective::direct
