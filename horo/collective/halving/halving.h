// Recursive halving, then doubling (Rabenseifner 2004): in step k of the reduce-scatter partners at distance 2^k split
// what they still hold and each reduces one half; the allgather runs the same steps backwards. Distances grow, where
// others let them shrink, so that the tree is the one of recursive doubling.
#pragma once

#include "horo/collective/algorithm.h"

namespace horo::collective::halving {

void draft_halving(const Request& request, Draft& draft);
Cost halving_cost(const Operation& operation, const Shape& shape, const Table& table);

}  // namespace horo::collective::halving
