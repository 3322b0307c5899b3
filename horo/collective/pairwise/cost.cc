// What pairwise exchange costs; docs/algorithms.md has the same formulas in words.
#include <algorithm>

#include "horo/collective/pairwise/pairwise.h"
#include "horo/collective/stage.h"

namespace horo::collective::pairwise {

namespace {

/// Phases of `count` pipelined segments whose second transfer comes `gap` phases after the first. With one segment the
/// phases in between hold no transfer.
uint64_t pipelined_steps(uint64_t count, uint64_t gap) { return count == 1 ? 2 : count + gap; }

size_t reduce_phases(const Operation& operation, const Shape& shape) {
  Arithmetic arithmetic{operation.dtype, operation.op, {}, scaling_after(operation, shape.ranks())};
  return exchange_reduce_phases(static_cast<size_t>(shape.ranks()), arithmetic, true);
}

Cost reduce_slices_cost(const Operation& operation, const Shape& shape, const Table& table, bool to_all) {
  auto ranks = static_cast<uint64_t>(shape.ranks());
  uint64_t element = size_of(operation.dtype);
  Cut slices(operation.count, ranks);
  uint64_t longest = slices.longest();
  uint64_t count = segments(table, longest, element);
  // Sent: every slice but the own one, then the own one, reduced, to the others or to the root.
  uint64_t copies = to_all ? ranks - 2 : 0;
  Cost cost;
  cost.steps = pipelined_steps(count, reduce_phases(operation, shape));
  cost.messages = slices.pieces(count) + copies * std::min(count, longest);
  cost.bytes = (operation.count + copies * longest) * element;
  cost.reduced = ranks * longest * element;
  return cost;
}

Cost reducescatter_cost(const Operation& operation, const Table& table) {
  const auto& counts = operation.counts;
  uint64_t element = size_of(operation.dtype);
  auto [shortest, longest] = std::minmax_element(counts.begin(), counts.end());
  uint64_t count = segments(table, *longest, element);
  Cost cost;
  cost.steps = count;
  for (uint64_t part : counts) cost.messages += std::min(count, part);
  cost.messages -= std::min(count, *shortest);
  cost.bytes = (operation.total() - *shortest) * element;
  cost.reduced = counts.size() * *longest * element;
  return cost;
}

Cost broadcast_cost(const Operation& operation, const Shape& shape, const Table& table) {
  auto others = static_cast<uint64_t>(shape.ranks() - 1);
  uint64_t element = size_of(operation.dtype);
  Cut slices(operation.count, others);
  uint64_t count = segments(table, slices.longest(), element);
  Cost cost;
  cost.steps = others == 1 ? count : count + 1;
  cost.messages = std::max(slices.pieces(count), (others - 1) * std::min(count, slices.longest()));
  cost.bytes = std::max(operation.count, (others - 1) * slices.longest()) * element;
  return cost;
}

/// Gather and scatter: of what goes from or to the root, only the root's own part does not travel.
Cost rooted_cost(const Operation& operation) {
  const auto& counts = operation.counts;
  auto root = static_cast<size_t>(operation.root);
  Cost cost;
  cost.steps = 1;
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    if (rank == root || counts[rank] == 0) continue;
    bool scatter = operation.kind == Kind::kScatter;
    cost.messages = scatter ? cost.messages + 1 : 1;
    cost.bytes = scatter ? cost.bytes + counts[rank] : std::max(cost.bytes, counts[rank]);
  }
  cost.steps = cost.messages > 0 ? 1 : 0;
  cost.bytes *= size_of(operation.dtype);
  return cost;
}

}  // namespace

Cost pairwise_cost(const Operation& operation, const Shape& shape, const Table& table) {
  auto others = static_cast<uint64_t>(shape.ranks() - 1);
  uint64_t element = size_of(operation.dtype);
  const auto& counts = operation.counts;
  Cost cost{1, 0, others, 0, 0, 0};
  switch (operation.kind) {
    case Kind::kAllreduce:
    case Kind::kReduce:
      cost = reduce_slices_cost(operation, shape, table, operation.kind == Kind::kAllreduce);
      break;
    case Kind::kReduceScatter:
      cost = reducescatter_cost(operation, table);
      break;
    case Kind::kBroadcast:
      cost = broadcast_cost(operation, shape, table);
      break;
    case Kind::kGather:
    case Kind::kScatter:
      cost = rooted_cost(operation);
      break;
    case Kind::kAllgather:
      cost.bytes = others * *std::max_element(counts.begin(), counts.end()) * element;
      break;
    case Kind::kAlltoall:
      // An upper bound: what a member keeps for itself is known to that member alone.
      cost.bytes = operation.total_bytes();
      break;
    case Kind::kSendRecv:
      cost.messages = operation.root == operation.target ? 0 : 1;
      cost.steps = cost.messages;
      cost.bytes = cost.messages * operation.total_bytes();
      break;
    case Kind::kBarrier:
    case Kind::kRefused:
      break;
  }
  return spread_over_hosts(cost, shape);
}

}  // namespace horo::collective::pairwise
