// Which survivors may go on as the job, when the others may be alive somewhere else.
#pragma once

#include <vector>

#include "horo/base/status.h"
#include "horo/rendezvous/lost_set.h"

namespace horo::rendezvous {

/// Pure. `before` are the ranks of the job so far, `members` those of them that would go on, `losses` why others are
/// missing; all sorted by rank. A rank that was killed or has left is certainly gone and does not count. Of the rest
/// more than half must be there; exactly half will do with the lowest rank among them. So of the sides of a network
/// that was cut in two at most one goes on. kUnavailable, with what is missing, for a side that must not.
Status check_quorum(const std::vector<int>& before, const std::vector<int>& members, const std::vector<Loss>& losses);

}  // namespace horo::rendezvous
