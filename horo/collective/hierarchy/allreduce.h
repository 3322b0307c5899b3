// Allreduce in two levels: first among the members of each host, then between hosts, then back. Every element is
// combined in rank order within each host and then in host order, in both forms.
//
// Slices: reduce-scatter in the host, pairwise allreduce of each slice between the members of equal index of all hosts,
// allgather in the host; every member drives the network with its own slice. Where hosts have different numbers of
// members, the first of each host does the part between hosts alone.
//
// Flood: everybody sends everything to everybody of its host, then to those of equal index: two steps, for small sizes.
#pragma once

#include "horo/collective/algorithm.h"

namespace horo::collective::hierarchy {

void draft_slices(const Request& request, Draft& draft);
Cost slices_cost(const Operation& operation, const Shape& shape, const Table& table);

void draft_flood(const Request& request, Draft& draft);
Cost flood_cost(const Operation& operation, const Shape& shape, const Table& table);

}  // namespace horo::collective::hierarchy
