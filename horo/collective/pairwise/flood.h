// Flood: everybody sends its whole input to everybody, who combine all of them in rank order. One step: for small
// sizes.
#pragma once

#include "horo/collective/algorithm.h"

namespace horo::collective::pairwise {

void draft_flood(const Request& request, Draft& draft);
Cost flood_cost(const Operation& operation, const Shape& shape, const Table& table);

}  // namespace horo::collective::pairwise
