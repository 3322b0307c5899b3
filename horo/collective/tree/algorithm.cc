// Rooted operations along trees and chains, and the barrier.
#include "horo/collective/algorithm.h"

#include "horo/collective/stage.h"
#include "horo/collective/tree/binomial.h"
#include "horo/collective/tree/chain.h"
#include "horo/collective/tree/reduce.h"

namespace horo::collective::tree {

namespace {

std::string tree_refusal(const Operation& operation, const Shape&) {
  bool fits = operation.kind == Kind::kBroadcast || operation.kind == Kind::kReduce ||
              operation.kind == Kind::kGather || operation.kind == Kind::kScatter;
  return fits ? std::string() : unsupported("tree", operation.kind);
}

std::string chain_refusal(const Operation& operation, const Shape&) {
  return operation.kind == Kind::kBroadcast ? std::string() : unsupported("chain", operation.kind);
}

std::string dissemination_refusal(const Operation& operation, const Shape&) {
  return operation.kind == Kind::kBarrier ? std::string() : unsupported("dissemination", operation.kind);
}

void draft_tree(const Request& request, Draft& draft) {
  if (request.operation.kind == Kind::kReduce) return draft_reduce(request, draft);
  draft_binomial(request, draft);
}

Cost tree_cost(const Operation& operation, const Shape& shape, const Table& table) {
  return operation.kind == Kind::kReduce ? reduce_cost(operation, shape, table)
                                         : binomial_cost(operation, shape, table);
}

void draft_dissemination(const Request& request, Draft& draft) {
  barrier(draft, request.start, Team::everyone(request.shape, request.rank));
}

Cost dissemination_cost(const Operation&, const Shape& shape, const Table&) {
  uint64_t rounds = log2_ceil(static_cast<uint64_t>(shape.ranks()));
  return spread_over_hosts({rounds, 0, rounds, 0, 0, 0}, shape);
}

constexpr Algorithm kAlgorithms[] = {
    {"chain", Order::kNone, chain_refusal, chain_cost, draft_chain},
    {"dissemination", Order::kNone, dissemination_refusal, dissemination_cost, draft_dissemination},
    {"tree", Order::kTree, tree_refusal, tree_cost, draft_tree},
};

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

}  // namespace horo::collective::tree
