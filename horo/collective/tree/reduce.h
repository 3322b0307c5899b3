// Reduce along TreeShape, whatever the root is: of two subtrees the one that holds the root receives, else the lower
// one.
#pragma once

#include "horo/collective/algorithm.h"

namespace horo::collective::tree {

void draft_reduce(const Request& request, Draft& draft);
Cost reduce_cost(const Operation& operation, const Shape& shape, const Table& table);

}  // namespace horo::collective::tree
