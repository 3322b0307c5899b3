// Ring (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009): every member
// only ever sends to the next one. The fewest bytes with the fewest wires, but as many steps as members, and each slice
// is summed in another order.
#include "horo/collective/algorithm.h"

#include <algorithm>

#include "horo/collective/stage.h"

namespace horo::collective::ring {

namespace {

constexpr Place kResult{Buffer::kWork, 0};

std::string refusal(const Operation& operation, const Shape&) {
  bool fits = operation.kind == Kind::kAllreduce || operation.kind == Kind::kReduceScatter ||
              operation.kind == Kind::kAllgather;
  return fits ? std::string() : unsupported("ring", operation.kind);
}

/// The wires of a member: messages go up to the next one and come from the one below.
struct Wires {
  explicit Wires(const Team& team) : up(team.ranks[team.around(1)]), down(team.ranks[team.around(-1)]) {}
  int up;
  int down;
};

/// The parts circulate; at the beginning this member holds part `held`, at `from` where it differs from its place in
/// the result.
void circulate(Draft& draft, size_t phase, const Team& team, std::span<const Run> parts, size_t held, Place from) {
  Wires wires(team);
  for (size_t step = 0; step + 1 < team.size(); ++step) {
    size_t sent = (held + team.size() - step) % team.size();
    size_t received = (sent + team.size() - 1) % team.size();
    Place place = step == 0 ? from : kResult.at(parts[sent].offset);
    draft.send(phase + step, wires.up, {place, parts[sent].count});
    draft.receive(phase + step, wires.down, {kResult.at(parts[received].offset), parts[received].count});
  }
}

void draft_allreduce(const Request& request, Draft& draft) {
  Team team = Team::everyone(request.shape, request.rank);
  Wires wires(team);
  size_t members = team.size();
  Cut slices(request.operation.count, members);
  for (size_t step = 0; step + 1 < members; ++step) {
    Run sent = slices.part(team.around(-static_cast<int64_t>(step)));
    Run received = slices.part(team.around(-static_cast<int64_t>(step) - 1));
    Place from = step == 0 ? request.source : kResult;
    draft.send(request.start + step, wires.up, {from.at(sent.offset), sent.count});
    draft.receive_combine(request.start + step, wires.down, {kResult.at(received.offset), received.count},
                          request.source.at(received.offset));
  }
  size_t complete = team.around(1);
  Run own = slices.part(complete);
  size_t ready = request.start + members - 1;
  if (!request.arithmetic.after.none()) {
    draft.scale_after(ready++, {kResult.at(own.offset), own.count}, kResult.at(own.offset));
  }
  circulate(draft, ready, team, segment_of(slices, 0, 1), complete, kResult.at(own.offset));
}

void draft_reducescatter(const Request& request, Draft& draft) {
  Team team = Team::everyone(request.shape, request.rank);
  Wires wires(team);
  const auto& counts = request.operation.counts;
  auto parts = runs_of(counts);
  uint64_t slot = *std::max_element(counts.begin(), counts.end());
  Place slots = draft.scratch(team.size() > 2 ? 2 * slot : 0);
  Place held = request.source.at(parts[team.around(-1)].offset);
  for (size_t step = 0; step + 1 < team.size(); ++step) {
    Run sent = parts[team.around(-static_cast<int64_t>(step) - 1)];
    Run received = parts[team.around(-static_cast<int64_t>(step) - 2)];
    bool last = step + 2 == team.size();
    Place into = last ? kResult : slots.at(step % 2 * slot);
    draft.send(request.start + step, wires.up, {held, sent.count});
    draft.receive_combine(request.start + step, wires.down, {into, received.count}, request.source.at(received.offset));
    held = into;
  }
  Range own{kResult, parts[team.self].count};
  if (!request.arithmetic.after.none()) draft.scale_after(request.start + team.size() - 1, own, kResult);
}

void draft_allgather(const Request& request, Draft& draft) {
  Team team = Team::everyone(request.shape, request.rank);
  auto parts = runs_of(request.operation.counts);
  Run own = parts[team.self];
  draft.copy(request.start, {kResult.at(own.offset), own.count}, request.source);
  circulate(draft, request.start, team, parts, team.self, request.source);
}

void draft_ring(const Request& request, Draft& draft) {
  if (request.operation.kind == Kind::kAllreduce) return draft_allreduce(request, draft);
  if (request.operation.kind == Kind::kReduceScatter) return draft_reducescatter(request, draft);
  draft_allgather(request, draft);
}

/// One turn of parts around the ring: every member sends all but one of them.
Cost turn(std::span<const Run> parts) {
  Cost cost;
  uint64_t all = 0;
  uint64_t filled = 0;
  uint64_t shortest = parts[0].count;
  for (Run part : parts) {
    all += part.count;
    filled += part.count > 0 ? 1 : 0;
    shortest = std::min(shortest, part.count);
  }
  cost.steps = parts.size() - 1;
  cost.messages = shortest == 0 ? filled : filled - 1;
  cost.bytes = all - shortest;
  return cost;
}

Cost cost(const Operation& operation, const Shape& shape, const Table&) {
  auto ranks = static_cast<uint64_t>(shape.ranks());
  uint64_t element = size_of(operation.dtype);
  Cost cost;
  if (operation.kind == Kind::kAllreduce) {
    // A member leaves out two slices that are neighbours, one in each turn; the busiest leaves out the shortest.
    Cut slices(operation.count, ranks);
    uint64_t left_out = slices.part(ranks - 1).count + slices.part(ranks - 2).count;
    uint64_t filled = slices.pieces(1);
    uint64_t filled_left_out = Cut(operation.count, ranks).part(ranks - 1).count > 0 ? 1 : 0;
    filled_left_out += slices.part(ranks - 2).count > 0 ? 1 : 0;
    cost = {2 * (ranks - 1), 0, 2 * filled - filled_left_out, (2 * operation.count - left_out) * element, 0, 0};
    cost.reduced = 2 * (operation.count - slices.part(ranks - 1).count) * element;
  } else {
    cost = turn(runs_of(operation.counts));
    cost.bytes *= element;
    if (operation.kind == Kind::kReduceScatter) cost.reduced = 2 * cost.bytes;
  }
  return spread_over_hosts(cost, shape);
}

constexpr Algorithm kAlgorithms[] = {{"ring", Order::kSlice, refusal, cost, draft_ring}};

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

}  // namespace horo::collective::ring
