#include "horo/rendezvous/quorum.h"

#include <algorithm>

#include "horo/base/text.h"

namespace horo::rendezvous {

Status check_quorum(const std::vector<int>& before, const std::vector<int>& members, const std::vector<Loss>& losses) {
  const auto certainly_gone = [&](int rank) {
    return std::any_of(losses.begin(), losses.end(),
                       [&](const Loss& loss) { return loss.rank == rank && !is_eviction(loss.reason); });
  };
  std::vector<int> voters, silent;
  size_t here = 0;
  for (int rank : before) {
    const bool is_here = std::binary_search(members.begin(), members.end(), rank);
    if (!is_here && certainly_gone(rank)) continue;
    voters.push_back(rank);
    is_here ? void(++here) : silent.push_back(rank);
  }
  if (2 * here > voters.size()) return {};
  if (2 * here == voters.size() && std::binary_search(members.begin(), members.end(), voters.front())) return {};
  return {Code::kUnavailable, text("this side of the job must not go on: ", here, " of ", voters.size(),
                                   " ranks are here, and ", ranks_text(silent),
                                   " may be alive elsewhere (silent, not known to have ended); more than half must be "
                                   "here, or half with rank ",
                                   voters.empty() ? 0 : voters.front())};
}

}  // namespace horo::rendezvous
