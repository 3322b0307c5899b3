// Pairwise exchange (Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH",
// 2005): every pair of members exchanges what the other needs. Reductions are in rank order.
#pragma once

#include "horo/collective/algorithm.h"

namespace horo::collective::pairwise {

void draft_pairwise(const Request& request, Draft& draft);
Cost pairwise_cost(const Operation& operation, const Shape& shape, const Table& table);

}  // namespace horo::collective::pairwise
