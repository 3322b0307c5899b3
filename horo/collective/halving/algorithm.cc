// Partners at distance 1, 2, 4, ...: the number of steps is the logarithm of the number of members.
#include "horo/collective/algorithm.h"

#include "horo/collective/halving/doubling.h"
#include "horo/collective/halving/halving.h"

namespace horo::collective::halving {

namespace {

std::string halving_refusal(const Operation& operation, const Shape&) {
  return operation.kind == Kind::kAllreduce ? std::string() : unsupported("halving", operation.kind);
}

std::string doubling_refusal(const Operation& operation, const Shape&) {
  return operation.kind == Kind::kAllreduce ? std::string() : unsupported("doubling", operation.kind);
}

constexpr Algorithm kAlgorithms[] = {
    {"doubling", Order::kTree, doubling_refusal, doubling_cost, draft_doubling},
    {"halving", Order::kTree, halving_refusal, halving_cost, draft_halving},
};

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

}  // namespace horo::collective::halving
