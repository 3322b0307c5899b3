// Two levels, for groups on several hosts: what can be done within a host is done there first.
#include "horo/collective/algorithm.h"

#include "horo/base/text.h"
#include "horo/collective/hierarchy/allreduce.h"
#include "horo/collective/hierarchy/layout.h"
#include "horo/collective/hierarchy/moves.h"

namespace horo::collective::hierarchy {

namespace {

std::string slices_refusal(const Operation& operation, const Shape& shape) {
  bool by_member = operation.kind == Kind::kAllgather || operation.kind == Kind::kReduceScatter;
  if (operation.kind != Kind::kAllreduce && !by_member) return unsupported("hierarchy", operation.kind);
  if (by_member && !is_equal(shape)) {
    return text("hierarchy does ", transport::name(operation.kind), " only where all hosts have as many ranks; here ",
                shape.fewest_per_host(), " to ", shape.most_per_host());
  }
  return needs_two_levels("hierarchy", shape);
}

std::string flood_refusal(const Operation& operation, const Shape& shape) {
  bool fits = operation.kind == Kind::kAllreduce || operation.kind == Kind::kBroadcast;
  return fits ? needs_two_levels("hierarchy-flood", shape) : unsupported("hierarchy-flood", operation.kind);
}

void draft_by_slices(const Request& request, Draft& draft) {
  if (request.operation.kind == Kind::kAllgather) return draft_allgather(request, draft);
  if (request.operation.kind == Kind::kReduceScatter) return draft_reducescatter(request, draft);
  draft_slices(request, draft);
}

Cost by_slices_cost(const Operation& operation, const Shape& shape, const Table& table) {
  if (operation.kind == Kind::kAllgather) return allgather_cost(operation, shape, table);
  if (operation.kind == Kind::kReduceScatter) return reducescatter_cost(operation, shape, table);
  return slices_cost(operation, shape, table);
}

void draft_by_flood(const Request& request, Draft& draft) {
  if (request.operation.kind == Kind::kBroadcast) return draft_broadcast(request, draft);
  draft_flood(request, draft);
}

Cost by_flood_cost(const Operation& operation, const Shape& shape, const Table& table) {
  if (operation.kind == Kind::kBroadcast) return broadcast_cost(operation, shape, table);
  return flood_cost(operation, shape, table);
}

constexpr Algorithm kAlgorithms[] = {
    {"hierarchy", Order::kHost, slices_refusal, by_slices_cost, draft_by_slices},
    {"hierarchy-flood", Order::kHost, flood_refusal, by_flood_cost, draft_by_flood},
};

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

}  // namespace horo::collective::hierarchy
