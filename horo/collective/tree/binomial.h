// Broadcast, scatter and gather along the binomial tree of the root: members are counted from the root; member v has
// the children v + 2^k for all 2^k below the lowest set bit of v. Subtrees are contiguous, so that a scatter sends each
// child the parts of its whole subtree in one message (two, where the ranks wrap around).
#pragma once

#include "horo/collective/algorithm.h"

namespace horo::collective::tree {

void draft_binomial(const Request& request, Draft& draft);
Cost binomial_cost(const Operation& operation, const Shape& shape, const Table& table);

}  // namespace horo::collective::tree
