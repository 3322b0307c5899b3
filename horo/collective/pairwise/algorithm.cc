// Everybody talks to everybody at once: the fewest steps and the fewest bytes, at the price of many messages.
#include "horo/collective/algorithm.h"

#include "horo/collective/pairwise/flood.h"
#include "horo/collective/pairwise/pairwise.h"

namespace horo::collective::pairwise {

namespace {

std::string pairwise_refusal(const Operation& operation, const Shape&) {
  return operation.kind == Kind::kBarrier ? unsupported("pairwise", operation.kind) : std::string();
}

std::string flood_refusal(const Operation& operation, const Shape&) {
  bool fits = operation.kind == Kind::kAllreduce || operation.kind == Kind::kReduce;
  return fits ? std::string() : unsupported("flood", operation.kind);
}

constexpr Algorithm kAlgorithms[] = {
    {"flood", Order::kRank, flood_refusal, flood_cost, draft_flood},
    {"pairwise", Order::kRank, pairwise_refusal, pairwise_cost, draft_pairwise},
};

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

}  // namespace horo::collective::pairwise
