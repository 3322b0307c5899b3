#include "horo/rendezvous/quorum.h"

#include <algorithm>

#include "horo/base/text.h"

namespace horo::rendezvous {

Status check_quorum(const std::vector<int>& before, const std::vector<int>& members, const std::vector<Loss>& losses) {
  const auto certainly_gone = [&](int rank) {
    return std::any_of(losses.begin(), losses.end(),
                       [&](const Loss& loss) { return loss.rank == rank && !is_eviction(loss.reason); });
  };
  std::vector<int> silent;
  size_t here = 0;
  for (int rank : before) {
    if (std::binary_search(members.begin(), members.end(), rank)) {
      ++here;
    } else if (!certainly_gone(rank)) {
      silent.push_back(rank);
    }
  }
  if (silent.empty() || 2 * here > before.size()) return {};
  const bool has_lowest = std::binary_search(members.begin(), members.end(), before.front());
  if (2 * here == before.size() && has_lowest) return {};
  return {Code::kUnavailable, text("this side of the job must not go on: ", here, " of ", before.size(),
                                   " ranks are here, and ", ranks_text(silent),
                                   " may be alive elsewhere (silent, not known to have ended); more than half must be "
                                   "here, or half with rank ",
                                   before.front())};
}

}  // namespace horo::rendezvous
