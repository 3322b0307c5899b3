// Pipelined chain: the root's data goes from member to member in segments. As many bytes as there are, once per member;
// for large broadcasts.
#pragma once

#include "horo/collective/algorithm.h"

namespace horo::collective::tree {

void draft_chain(const Request& request, Draft& draft);
Cost chain_cost(const Operation& operation, const Shape& shape, const Table& table);

}  // namespace horo::collective::tree
