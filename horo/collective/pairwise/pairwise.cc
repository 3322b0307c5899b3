#include "horo/collective/pairwise/pairwise.h"

#include <algorithm>

#include "horo/collective/stage.h"

namespace horo::collective::pairwise {

namespace {

constexpr Place kResult{Buffer::kWork, 0};

/// Reduce-scatter of slices, then every owner sends its reduced slice to everybody; segment s is reduced while segment
/// s + 1 arrives and segment s - 1 is sent on.
void draft_allreduce(const Request& request, Draft& draft) {
  Team team = Team::everyone(request.shape, request.rank);
  Cut slices(request.operation.count, team.size());
  uint64_t count = segments(request.table, slices.longest(), request.element_bytes());
  Slots slots(draft, team, request.arithmetic, slices.part(team.self).count, count);
  for (uint64_t s = 0; s < count; ++s) {
    auto parts = segment_of(slices, s, count);
    ReduceScatter what{request.source, parts, kResult.at(parts[team.self].offset), slots.of(s)};
    size_t ready = exchange_reduce(draft, request.start + s, team, what, request.arithmetic);
    exchange_parts(draft, ready, team, kResult, parts);
  }
}

void draft_reducescatter(const Request& request, Draft& draft) {
  Team team = Team::everyone(request.shape, request.rank);
  auto all = runs_of(request.operation.counts);
  const auto& counts = request.operation.counts;
  uint64_t count = segments(request.table, *std::max_element(counts.begin(), counts.end()), request.element_bytes());
  Slots slots(draft, team, request.arithmetic, counts[team.self], count);
  for (uint64_t s = 0; s < count; ++s) {
    auto parts = segment_of(all, s, count);
    Place into = kResult.at(parts[team.self].offset - all[team.self].offset);
    exchange_reduce(draft, request.start + s, team, {request.source, parts, into, slots.of(s)}, request.arithmetic);
  }
}

/// As the allreduce, but the reduced slices go to the root alone.
void draft_reduce(const Request& request, Draft& draft) {
  Team team = Team::everyone(request.shape, request.rank);
  int root = request.operation.root;
  Cut slices(request.operation.count, team.size());
  uint64_t count = segments(request.table, slices.longest(), request.element_bytes());
  Run own = slices.part(team.self);
  Slots slots(draft, team, request.arithmetic, own.count, count);
  bool is_root = request.rank == root;
  Place into = is_root ? kResult.at(own.offset) : draft.scratch(own.count);
  for (uint64_t s = 0; s < count; ++s) {
    auto parts = segment_of(slices, s, count);
    Run mine = parts[team.self];
    Place piece = into.at(mine.offset - own.offset);
    ReduceScatter what{request.source, parts, piece, slots.of(s)};
    size_t ready = exchange_reduce(draft, request.start + s, team, what, request.arithmetic);
    if (!is_root) draft.send(ready, root, {piece, mine.count});
    for (size_t step = 1; is_root && step < team.size(); ++step) {
      size_t from = team.around(-static_cast<int64_t>(step));
      draft.receive(ready, team.ranks[from], {kResult.at(parts[from].offset), parts[from].count});
    }
  }
}

void draft_allgather(const Request& request, Draft& draft) {
  Team team = Team::everyone(request.shape, request.rank);
  auto parts = runs_of(request.operation.counts);
  uint64_t own = parts[team.self].count;
  for (size_t step = 1; step < team.size(); ++step) {
    size_t from = team.around(-static_cast<int64_t>(step));
    draft.send(request.start, team.ranks[team.around(static_cast<int64_t>(step))], {request.source, own});
    draft.receive(request.start, team.ranks[from], {kResult.at(parts[from].offset), parts[from].count});
  }
  draft.copy(request.start, {kResult.at(parts[team.self].offset), own}, request.source);
}

void draft_alltoall(const Request& request, Draft& draft) {
  Team team = Team::everyone(request.shape, request.rank);
  auto sends = runs_of(request.operation.counts);
  auto receives = runs_of(request.operation.receive_counts);
  for (size_t step = 1; step < team.size(); ++step) {
    size_t to = team.around(static_cast<int64_t>(step));
    size_t from = team.around(-static_cast<int64_t>(step));
    draft.send_always(request.start, team.ranks[to], {request.source.at(sends[to].offset), sends[to].count});
    draft.receive_always(request.start, team.ranks[from], {kResult.at(receives[from].offset), receives[from].count});
  }
  Run own = receives[team.self];
  draft.copy(request.start, {kResult.at(own.offset), own.count}, request.source.at(sends[team.self].offset));
}

void draft_gather(const Request& request, Draft& draft) {
  Team team = Team::everyone(request.shape, request.rank);
  auto parts = runs_of(request.operation.counts);
  uint64_t own = parts[team.self].count;
  if (request.rank != request.operation.root) {
    draft.send(request.start, request.operation.root, {request.source, own});
    return;
  }
  for (size_t step = 1; step < team.size(); ++step) {
    size_t from = team.around(-static_cast<int64_t>(step));
    draft.receive(request.start, team.ranks[from], {kResult.at(parts[from].offset), parts[from].count});
  }
  draft.copy(request.start, {kResult.at(parts[team.self].offset), own}, request.source);
}

void draft_scatter(const Request& request, Draft& draft) {
  Team team = Team::everyone(request.shape, request.rank);
  auto parts = runs_of(request.operation.counts);
  Range own{kResult, parts[team.self].count};
  if (request.rank != request.operation.root) {
    draft.receive(request.start, request.operation.root, own);
    return;
  }
  for (size_t step = 1; step < team.size(); ++step) {
    size_t to = team.around(static_cast<int64_t>(step));
    draft.send(request.start, team.ranks[to], {request.source.at(parts[to].offset), parts[to].count});
  }
  draft.copy(request.start, own, request.source.at(parts[team.self].offset));
}

/// Scatter, then allgather among those who are not the root (van de Geijn 1994): everybody sends about as much as it
/// receives. The root keeps a copy in work, so that it can serve the data again after its caller went on.
void draft_broadcast(const Request& request, Draft& draft) {
  Team team = Team::everyone(request.shape, request.rank);
  int root = request.operation.root;
  bool is_root = request.rank == root;
  team.ranks.erase(team.ranks.begin() + root);
  team.self = static_cast<size_t>(request.rank > root ? request.rank - 1 : request.rank);
  Cut slices(request.operation.count, team.size());
  uint64_t count = segments(request.table, slices.longest(), request.element_bytes());
  for (uint64_t s = 0; s < count; ++s) {
    size_t phase = request.start + s;
    auto parts = segment_of(slices, s, count);
    if (!is_root) {
      Run mine = parts[team.self];
      draft.receive(phase, root, {kResult.at(mine.offset), mine.count});
      exchange_parts(draft, phase + 1, team, kResult, parts);
      continue;
    }
    for (size_t to = 0; to < team.size(); ++to) {
      draft.send(phase, team.ranks[to], {request.source.at(parts[to].offset), parts[to].count});
    }
    Run piece = Cut(request.operation.count, count).part(s);
    draft.copy(phase, {kResult.at(piece.offset), piece.count}, request.source.at(piece.offset));
  }
}

void draft_sendrecv(const Request& request, Draft& draft) {
  const Operation& operation = request.operation;
  bool sends = request.rank == operation.root;
  bool receives = request.rank == operation.target;
  if (sends && receives) {
    draft.copy(request.start, {kResult, operation.count}, request.source);
  } else if (sends) {
    draft.send_always(request.start, operation.target, {request.source, operation.count});
  } else if (receives) {
    draft.receive_always(request.start, operation.root, {kResult, operation.count});
  }
}

}  // namespace

void draft_pairwise(const Request& request, Draft& draft) {
  switch (request.operation.kind) {
    case Kind::kAllreduce:
      return draft_allreduce(request, draft);
    case Kind::kReduce:
      return draft_reduce(request, draft);
    case Kind::kReduceScatter:
      return draft_reducescatter(request, draft);
    case Kind::kAllgather:
      return draft_allgather(request, draft);
    case Kind::kGather:
      return draft_gather(request, draft);
    case Kind::kScatter:
      return draft_scatter(request, draft);
    case Kind::kBroadcast:
      return draft_broadcast(request, draft);
    case Kind::kAlltoall:
      return draft_alltoall(request, draft);
    case Kind::kSendRecv:
      return draft_sendrecv(request, draft);
    case Kind::kBarrier:
    case Kind::kRefused:
      return;
  }
}

}  // namespace horo::collective::pairwise
