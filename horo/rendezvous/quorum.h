// Which survivors may go on as the job, when the others may be alive somewhere else.
#pragma once

#include <vector>

#include "horo/base/status.h"
#include "horo/rendezvous/lost_set.h"

namespace horo::rendezvous {

/// Pure. `before` are the ranks of the job so far, `members` those of them that would go on, `losses` why others are
/// missing; all sorted by rank. Where everybody who is missing was killed or has left, whoever is there goes on. Where
/// somebody is silent, and so may be alive, more than half of `before` must be there, or exactly half with the lowest
/// rank of it. The dead count against us then: before they died they may have gone on with those who are silent. So two
/// sides that are alive never both go on. kUnavailable, with what is missing, for a side that must not.
Status check_quorum(const std::vector<int>& before, const std::vector<int>& members, const std::vector<Loss>& losses);

}  // namespace horo::rendezvous
