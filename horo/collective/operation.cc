#include "horo/collective/operation.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "horo/base/text.h"

namespace horo::collective {

namespace {

uint64_t sum(const std::vector<uint64_t>& counts) { return std::accumulate(counts.begin(), counts.end(), uint64_t{0}); }

bool takes_counts(Kind kind) {
  return kind == Kind::kReduceScatter || kind == Kind::kAllgather || kind == Kind::kGather || kind == Kind::kScatter ||
         kind == Kind::kAlltoall;
}

Status check_counts(const std::vector<uint64_t>& counts, const Operation& operation, size_t ranks, const char* what) {
  if (counts.size() != ranks) {
    return {Code::kInvalidArgument, text(transport::name(operation.kind), " over ", ranks, " ranks needs ", ranks, " ",
                                         what, ", got ", counts.size())};
  }
  // Byte offsets must fit into 64 bits with room for slots of scratch.
  uint64_t limit = (uint64_t{1} << 60) / size_of(operation.dtype);
  uint64_t left = limit;
  for (uint64_t count : counts) {
    if (count > left) return {Code::kInvalidArgument, text(what, " add up to more than ", limit, " elements")};
    left -= count;
  }
  return {};
}

Status check_member(const char* what, int member, int ranks, Kind kind) {
  if (member >= 0 && member < ranks) return {};
  return {Code::kInvalidArgument,
          text(transport::name(kind), ": ", what, " ", member, " is not a rank of this group (0 to ", ranks - 1, ")")};
}

Status check_reduction(const Operation& operation) {
  if (!can_reduce(operation.dtype, operation.op)) {
    return {Code::kInvalidArgument, text(transport::name(operation.kind), ": ", name(operation.dtype),
                                         " elements cannot be reduced with ", name(operation.op))};
  }
  bool scaled = operation.prescale != 1.0 || operation.postscale != 1.0;
  if (scaled && operation.dtype == DType::kBool) {
    return {Code::kInvalidArgument, text(transport::name(operation.kind), ": bool elements cannot be scaled")};
  }
  return {};
}

}  // namespace

uint64_t Operation::total() const {
  if (kind == Kind::kBarrier) return 0;  // Whatever its count says.
  return takes_counts(kind) ? sum(counts) : count;
}

uint64_t Operation::result_count(int rank) const {
  switch (kind) {
    case Kind::kBarrier:
    case Kind::kRefused:
      return 0;
    case Kind::kReduce:
    case Kind::kGather:
      return rank == root ? total() : 0;
    case Kind::kSendRecv:
      return rank == target ? count : 0;
    case Kind::kReduceScatter:
    case Kind::kScatter:
      return counts[static_cast<size_t>(rank)];
    case Kind::kAlltoall:
      return sum(receive_counts);
    case Kind::kAllreduce:
    case Kind::kAllgather:
    case Kind::kBroadcast:
      return total();
  }
  return 0;
}

uint64_t Operation::input_count(int rank) const {
  switch (kind) {
    case Kind::kBroadcast:
    case Kind::kScatter:
    case Kind::kSendRecv:
      return rank == root ? total() : 0;
    case Kind::kAllgather:
    case Kind::kGather:
      return counts[static_cast<size_t>(rank)];
    default:
      return total();
  }
}

Shape::Shape(std::vector<int> host_of) {
  std::map<int, size_t> place;
  for (int rank = 0; rank < static_cast<int>(host_of.size()); ++rank) {
    auto [found, is_new] = place.try_emplace(host_of[static_cast<size_t>(rank)], hosts_.size());
    if (is_new) hosts_.emplace_back();
    hosts_[found->second].push_back(rank);
    host_of_.push_back(found->second);
  }
  auto shorter = [](const auto& one, const auto& other) { return one.size() < other.size(); };
  auto [fewest, most] = std::minmax_element(hosts_.begin(), hosts_.end(), shorter);
  HORO_CHECK(!hosts_.empty(), "a group has members");
  fewest_per_host_ = static_cast<int>(fewest->size());
  most_per_host_ = static_cast<int>(most->size());
}

Status validate(const Operation& operation, const Shape& shape, int rank) {
  HORO_TRY(check_member("own rank", rank, shape.ranks(), operation.kind));
  if (!is_valid(operation.dtype)) return {Code::kInvalidArgument, "unknown element type"};
  if (static_cast<int>(operation.kind) > static_cast<int>(Kind::kSendRecv)) {
    return {Code::kInvalidArgument, text(transport::name(operation.kind), " is no operation of a group")};
  }
  HORO_TRY(check_counts({operation.count}, operation, 1, "count"));
  if (takes_counts(operation.kind)) {
    HORO_TRY(check_counts(operation.counts, operation, static_cast<size_t>(shape.ranks()), "counts"));
  }
  if (operation.kind == Kind::kAlltoall) {
    HORO_TRY(check_counts(operation.receive_counts, operation, static_cast<size_t>(shape.ranks()), "receive counts"));
    auto self = static_cast<size_t>(rank);
    if (operation.counts[self] != operation.receive_counts[self]) {
      return {Code::kInvalidArgument, text("alltoall: rank ", rank, " sends itself ", operation.counts[self],
                                           " elements but receives ", operation.receive_counts[self])};
    }
  }
  HORO_TRY(check_member("root", operation.root, shape.ranks(), operation.kind));
  HORO_TRY(check_member("target", operation.target, shape.ranks(), operation.kind));
  return operation.reduces() ? check_reduction(operation) : Status();
}

kernel::Scaling scaling_before(const Operation& operation) {
  kernel::Scaling scaling;
  if (operation.reduces()) scaling.factor = operation.prescale;
  return scaling;
}

kernel::Scaling scaling_after(const Operation& operation, int ranks) {
  kernel::Scaling scaling;
  if (!operation.reduces()) return scaling;
  if (operation.op == ReduceOp::kAverage) scaling = kernel::average(operation.dtype, ranks);
  scaling.factor *= operation.postscale;
  return scaling;
}

bool order_matters(const Operation& operation) {
  bool rounds = is_float(operation.dtype) || is_complex(operation.dtype);
  return operation.reduces() && rounds && operation.op != ReduceOp::kMin && operation.op != ReduceOp::kMax;
}

bool commutes(DType dtype, ReduceOp op) { return !is_float(dtype) || (op != ReduceOp::kMin && op != ReduceOp::kMax); }

}  // namespace horo::collective
