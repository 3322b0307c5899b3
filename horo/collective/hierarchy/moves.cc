#include "horo/collective/hierarchy/moves.h"

#include <algorithm>

#include "horo/collective/hierarchy/layout.h"

namespace horo::collective::hierarchy {

namespace {

/// The blocks of the members with index `index` on their hosts, in host order.
std::vector<Run> column(const Shape& shape, std::span<const Run> blocks, size_t index) {
  std::vector<Run> runs;
  for (const auto& members : shape.hosts()) runs.push_back(blocks[static_cast<size_t>(members[index])]);
  return runs;
}

struct Sum {
  uint64_t count = 0;
  uint64_t filled = 0;  ///< Runs that are not empty.
  explicit Sum(std::span<const Run> runs) {
    for (Run run : runs) {
      count += run.count;
      filled += run.count > 0 ? 1 : 0;
    }
  }
};

}  // namespace

void draft_allgather(const Request& request, Draft& draft) {
  Layout layout(request.shape, request.rank);
  auto blocks = runs_of(request.operation.counts);
  Run own = blocks[static_cast<size_t>(request.rank)];
  const Team& cross = layout.cross;
  draft.copy(request.start, {kResult.at(own.offset), own.count}, request.source);
  for (size_t step = 1; step < cross.size(); ++step) {
    size_t from = cross.around(-static_cast<int64_t>(step));
    Run block = blocks[static_cast<size_t>(cross.ranks[from])];
    draft.send(request.start, cross.ranks[cross.around(static_cast<int64_t>(step))], {request.source, own.count});
    draft.receive(request.start, cross.ranks[from], {kResult.at(block.offset), block.count});
  }
  const Team& local = layout.local;
  for (size_t step = 1; step < local.size(); ++step) {
    size_t to = local.around(static_cast<int64_t>(step));
    size_t from = local.around(-static_cast<int64_t>(step));
    for (Run run : column(request.shape, blocks, local.self)) {
      draft.send(request.start + 1, local.ranks[to], {kResult.at(run.offset), run.count});
    }
    for (Run run : column(request.shape, blocks, from)) {
      draft.receive(request.start + 1, local.ranks[from], {kResult.at(run.offset), run.count});
    }
  }
}

Cost allgather_cost(const Operation& operation, const Shape& shape, const Table&) {
  auto blocks = runs_of(operation.counts);
  auto local = static_cast<uint64_t>(shape.most_per_host());
  uint64_t hosts = shape.hosts().size();
  uint64_t element = size_of(operation.dtype);
  Cost cost{2, 1, 0, 0, 0, 0};
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    uint64_t own = operation.counts[static_cast<size_t>(rank)];
    Sum sum(column(shape, blocks, Layout(shape, rank).local.self));
    cost.messages = std::max(cost.messages, (own > 0 ? hosts - 1 : 0) + (local - 1) * sum.filled);
    cost.bytes = std::max(cost.bytes, ((hosts - 1) * own + (local - 1) * sum.count) * element);
    cost.remote_bytes = std::max(cost.remote_bytes, (hosts - 1) * own * element);
  }
  return cost;
}

void draft_reducescatter(const Request& request, Draft& draft) {
  Layout layout(request.shape, request.rank);
  auto blocks = runs_of(request.operation.counts);
  const Team& local = layout.local;
  auto mine = column(request.shape, blocks, local.self);
  uint64_t in_hand = Sum(mine).count;
  Place slots = draft.scratch((local.size() - 1) * in_hand);
  Place sums = draft.scratch(in_hand);
  std::vector<Place> places(local.size());
  for (size_t step = 1; step < local.size(); ++step) {
    size_t to = local.around(static_cast<int64_t>(step));
    size_t from = local.around(-static_cast<int64_t>(step));
    places[from] = slots.at((step - 1) * in_hand);
    for (Run run : column(request.shape, blocks, to)) {
      draft.send(request.start, local.ranks[to], {request.source.at(run.offset), run.count});
    }
    uint64_t offset = 0;
    for (Run run : mine) {
      draft.receive(request.start, local.ranks[from], {places[from].at(offset), run.count});
      offset += run.count;
    }
  }
  // The sums lie one after the other, host by host: each goes to its host.
  std::vector<Run> parts;
  uint64_t offset = 0;
  for (Run run : mine) {
    std::vector<Place> sources;
    for (size_t from = 0; from < local.size(); ++from) {
      sources.push_back(from == local.self ? request.source.at(run.offset) : places[from].at(offset));
    }
    draft.combine(request.start + 1, {sums.at(offset), run.count}, sources, false);
    parts.push_back({offset, run.count});
    offset += run.count;
  }
  Slots cross_slots(draft, layout.cross, request.arithmetic, parts[layout.cross.self].count, 1);
  exchange_reduce(draft, request.start + 2, layout.cross, {sums, parts, kResult, cross_slots.of(0), true},
                  request.arithmetic);
}

Cost reducescatter_cost(const Operation& operation, const Shape& shape, const Table&) {
  auto blocks = runs_of(operation.counts);
  auto local = static_cast<uint64_t>(shape.most_per_host());
  uint64_t hosts = shape.hosts().size();
  uint64_t element = size_of(operation.dtype);
  Sum all(blocks);
  Cost cost{2, 1, 0, 0, 0, 0};
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    uint64_t own = operation.counts[static_cast<size_t>(rank)];
    Sum sum(column(shape, blocks, Layout(shape, rank).local.self));
    uint64_t messages = all.filled - sum.filled + sum.filled - (own > 0 ? 1 : 0);
    cost.messages = std::max(cost.messages, messages);
    cost.bytes = std::max(cost.bytes, (all.count - own) * element);
    cost.remote_bytes = std::max(cost.remote_bytes, (sum.count - own) * element);
    cost.reduced = std::max(cost.reduced, (local * sum.count + hosts * own) * element);
  }
  return cost;
}

void draft_broadcast(const Request& request, Draft& draft) {
  Layout layout(request.shape, request.rank);
  int root = request.operation.root;
  Range result{kResult, request.operation.count};
  const auto& hosts = request.shape.hosts();
  bool at_home = request.shape.host_of(root) == request.shape.host_of(request.rank);
  int first = at_home ? root : layout.leader();
  Place from = request.rank == root ? request.source : kResult;
  if (request.rank == root) {
    for (size_t host = 0; host < hosts.size(); ++host) {
      if (host != request.shape.host_of(root)) draft.send(request.start, hosts[host][0], {from, result.count});
    }
    draft.copy(request.start, result, request.source);
  } else if (request.rank == first) {
    draft.receive(request.start, root, result);
  }
  for (int peer : layout.local.ranks) {
    if (request.rank == first && peer != first) draft.send(request.start + 1, peer, {from, result.count});
  }
  if (request.rank != first) draft.receive(request.start + 1, first, result);
}

Cost broadcast_cost(const Operation& operation, const Shape& shape, const Table&) {
  uint64_t hosts = shape.hosts().size();
  uint64_t at_home = shape.hosts()[shape.host_of(operation.root)].size();
  auto most = static_cast<uint64_t>(shape.most_per_host());
  uint64_t bytes = operation.total_bytes();
  Cost cost{2, 1, std::max(hosts - 1 + at_home - 1, most - 1), 0, (hosts - 1) * bytes, 0};
  cost.bytes = cost.messages * bytes;
  return cost;
}

}  // namespace horo::collective::hierarchy
