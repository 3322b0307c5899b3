// Where a rank is among the hosts.
#pragma once

#include "horo/collective/operation.h"

namespace horo::engine {

struct Position {
  int local_rank = 0, local_size = 1;
  int cross_rank = 0, cross_size = 1;  ///< Among the ranks with the same local rank, one per host.
  bool homogeneous = true;             ///< All hosts have equally many ranks.
};

Position position_of(const collective::Shape& shape, int rank);

}  // namespace horo::engine
