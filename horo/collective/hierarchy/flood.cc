#include <algorithm>

#include "horo/collective/hierarchy/allreduce.h"
#include "horo/collective/hierarchy/layout.h"

namespace horo::collective::hierarchy {

namespace {

/// Hosts of one size: everybody combines its host's inputs, then everybody combines the hosts' sums.
void draft_equal(const Request& request, Draft& draft, const Layout& layout) {
  uint64_t count = request.operation.count;
  Place slots = draft.scratch((std::max(layout.local.size(), layout.cross.size()) - 1) * count);
  size_t ready = flood_reduce(draft, request.start, layout.local, {{request.source, count}, kResult, slots, false});
  flood_reduce(draft, ready, layout.cross, {{kResult, count}, kResult, slots, true});
}

/// The first member of each host combines its host's inputs, floods the others of its kind and sends the result on.
void draft_leaders(const Request& request, Draft& draft, const Layout& layout) {
  Range result{kResult, request.operation.count};
  const Team& local = layout.local;
  size_t cross = request.start + 2;
  size_t down = cross + 2;
  if (!layout.leads) {
    draft.send(request.start, layout.leader(), {request.source, result.count});
    draft.receive(down, layout.leader(), result);
    return;
  }
  Place slots = draft.scratch((std::max(local.size(), layout.cross.size()) - 1) * result.count);
  std::vector<Place> places{request.source};
  for (size_t from = 1; from < local.size(); ++from) {
    places.push_back(slots.at((from - 1) * result.count));
    draft.receive(request.start, local.ranks[from], {places[from], result.count});
    draft.send(down, local.ranks[from], result);
  }
  Place sum = local.size() > 1 ? kResult : request.source;
  if (local.size() > 1) draft.combine(request.start + 1, result, places, false);
  flood_reduce(draft, cross, layout.cross, {{sum, result.count}, kResult, slots, true});
}

}  // namespace

void draft_flood(const Request& request, Draft& draft) {
  Layout layout(request.shape, request.rank);
  if (layout.equal) return draft_equal(request, draft, layout);
  draft_leaders(request, draft, layout);
}

Cost flood_cost(const Operation& operation, const Shape& shape, const Table&) {
  auto local = static_cast<uint64_t>(shape.most_per_host());
  uint64_t hosts = shape.hosts().size();
  Cost cost;
  cost.steps = is_equal(shape) ? 2 : 3;
  cost.remote_steps = 1;
  cost.messages = local - 1 + hosts - 1;
  cost.bytes = cost.messages * operation.total_bytes();
  cost.remote_bytes = (hosts - 1) * operation.total_bytes();
  cost.reduced = (local + hosts) * operation.total_bytes();
  return cost;
}

}  // namespace horo::collective::hierarchy
