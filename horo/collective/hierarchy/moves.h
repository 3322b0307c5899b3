// Operations in two levels whose data is cut by member: each block crosses between hosts once per host, not once per
// member.
#pragma once

#include "horo/collective/algorithm.h"

namespace horo::collective::hierarchy {

/// To the members of equal index on the other hosts, then all blocks in hand to the members of the host.
void draft_allgather(const Request& request, Draft& draft);
Cost allgather_cost(const Operation& operation, const Shape& shape, const Table& table);

/// The same backwards: reduced in the host first, in rank order, then between hosts, in host order.
void draft_reducescatter(const Request& request, Draft& draft);
Cost reducescatter_cost(const Operation& operation, const Shape& shape, const Table& table);

/// From the root to one member of each other host, then within the hosts. Two steps.
void draft_broadcast(const Request& request, Draft& draft);
Cost broadcast_cost(const Operation& operation, const Shape& shape, const Table& table);

}  // namespace horo::collective::hierarchy
