// Recursive doubling: in step k partners at distance 2^k exchange and combine all they have. The fewest steps for an
// allreduce of few bytes (Thakur, Rabenseifner, Gropp 2005).
#pragma once

#include "horo/collective/algorithm.h"

namespace horo::collective::halving {

void draft_doubling(const Request& request, Draft& draft);
Cost doubling_cost(const Operation& operation, const Shape& shape, const Table& table);

}  // namespace horo::collective::halving
