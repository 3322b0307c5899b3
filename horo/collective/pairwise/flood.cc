#include "horo/collective/pairwise/flood.h"

#include <algorithm>

#include "horo/collective/stage.h"

namespace horo::collective::pairwise {

namespace {

constexpr Place kResult{Buffer::kWork, 0};

/// Reduce: all inputs go to the root alone.
void draft_to_root(const Request& request, Draft& draft, const Team& team, uint64_t segments) {
  Cut cut(request.operation.count, segments);
  uint64_t slot = cut.longest();
  uint64_t sets = std::min<uint64_t>(segments, 2);
  bool is_root = request.rank == request.operation.root;
  Place slots = draft.scratch(is_root ? sets * (team.size() - 1) * slot : 0);
  for (uint64_t s = 0; s < segments; ++s) {
    Run run = cut.part(s);
    if (!is_root) {
      draft.send(request.start + s, request.operation.root, {request.source.at(run.offset), run.count});
      continue;
    }
    std::vector<Place> places;
    Place next = slots.at(s % 2 * (team.size() - 1) * slot);
    for (size_t from = 0; from < team.size(); ++from) {
      places.push_back(from == team.self ? request.source.at(run.offset) : next);
      if (from == team.self) continue;
      draft.receive(request.start + s, team.ranks[from], {next, run.count});
      next = next.at(run.count);
    }
    draft.combine(request.start + s + 1, {kResult.at(run.offset), run.count}, places, true);
  }
}

}  // namespace

void draft_flood(const Request& request, Draft& draft) {
  Team team = Team::everyone(request.shape, request.rank);
  uint64_t count = segments(request.table, request.operation.count, request.element_bytes());
  if (request.operation.kind == Kind::kReduce) return draft_to_root(request, draft, team, count);
  Cut cut(request.operation.count, count);
  uint64_t set = (team.size() - 1) * cut.longest();
  Place slots = draft.scratch(set * std::min<uint64_t>(count, 2));
  for (uint64_t s = 0; s < count; ++s) {
    Run run = cut.part(s);
    flood_reduce(draft, request.start + s, team,
                 {{request.source.at(run.offset), run.count}, kResult.at(run.offset), slots.at(s % 2 * set)});
  }
}

Cost flood_cost(const Operation& operation, const Shape& shape, const Table& table) {
  auto ranks = static_cast<uint64_t>(shape.ranks());
  uint64_t count = segments(table, operation.count, size_of(operation.dtype));
  uint64_t copies = operation.kind == Kind::kReduce ? 1 : ranks - 1;
  Cost cost;
  cost.steps = count;
  cost.messages = copies * count;
  cost.bytes = copies * operation.total_bytes();
  cost.reduced = ranks * operation.total_bytes();
  return spread_over_hosts(cost, shape);
}

}  // namespace horo::collective::pairwise
