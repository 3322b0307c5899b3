#include "horo/collective/algorithm.h"

#include <algorithm>

#include "horo/base/text.h"
#include "horo/collective/stage.h"

namespace horo::collective {

namespace {

void draft_alone(const Request& request, Draft& draft) {
  uint64_t count = request.operation.result_count(request.rank);
  if (request.arithmetic.after.none()) {
    draft.deliver({request.source, count});
    return;
  }
  Range work{{Buffer::kWork, 0}, count};
  draft.scale_after(request.start, work, request.source);
  draft.deliver(work);
}

uint64_t input_count(const Operation& operation, int rank) {
  return operation.kind == Kind::kAllgather || operation.kind == Kind::kGather
             ? operation.counts[static_cast<size_t>(rank)]
             : operation.total();
}

}  // namespace

std::string_view name(Order order) {
  switch (order) {
    case Order::kNone:
      return "none";
    case Order::kRank:
      return "rank order";
    case Order::kTree:
      return "tree order";
    case Order::kHost:
      return "host order";
    case Order::kSlice:
      return "slice order";
  }
  return "unknown order";
}

const Algorithm* find_algorithm(std::string_view name) {
  auto all = registry();
  auto found = std::find_if(all.begin(), all.end(), [&](const Algorithm& algorithm) { return algorithm.name == name; });
  return found == all.end() ? nullptr : &*found;
}

Result<Plan> build_plan(const Algorithm& algorithm, const Operation& operation, const Shape& shape, int rank,
                        const Table& table) {
  HORO_TRY(validate(operation, shape, rank));
  std::string refusal = algorithm.refusal(operation, shape);
  if (!refusal.empty()) return Status(Code::kInvalidArgument, refusal);

  Arithmetic arithmetic{operation.dtype, operation.op, scaling_before(operation),
                        scaling_after(operation, shape.ranks())};
  Request request{operation, shape, table, arithmetic, rank, {Buffer::kInput, 0}, 0};
  Draft draft;
  if (!arithmetic.before.none()) {
    uint64_t count = input_count(operation, rank);
    Place scaled = draft.scratch(count);
    draft.scale_before(0, {scaled, count}, request.source);
    request.source = scaled;
    request.start = 1;
  }
  // Where nothing is moved the members still meet, so that a disagreement shows. (An alltoall and a sendrecv always
  // send messages: there a member cannot know that nothing is moved anywhere.)
  bool pairs = operation.kind == Kind::kAlltoall || operation.kind == Kind::kSendRecv;
  bool empty = operation.total() == 0 && !pairs && operation.kind != Kind::kBarrier;
  bool closing = shape.ranks() > 1 && !operation.replicates() && operation.kind != Kind::kSendRecv && !empty;
  if (shape.ranks() == 1) {
    draft_alone(request, draft);
  } else if (empty) {
    barrier(draft, 0, Team::everyone(shape, rank));
  } else {
    algorithm.draft(request, draft);
    uint64_t count = operation.result_count(rank);
    if (count > 0) draft.deliver({{Buffer::kWork, 0}, count});
    if (closing) barrier(draft, draft.end(), Team::everyone(shape, rank));
  }
  Plan plan = std::move(draft).finish(arithmetic);
  plan.algorithm = algorithm.name;
  plan.rank = rank;
  plan.needs_closing_barrier = closing;
  return plan;
}

std::string unsupported(std::string_view algorithm, Kind kind) {
  return text(algorithm, " does not do ", transport::name(kind));
}

Cost spread_over_hosts(Cost cost, const Shape& shape) {
  if (shape.hosts().size() < 2) return cost;
  auto others = static_cast<uint64_t>(shape.ranks() - 1);
  auto abroad = static_cast<uint64_t>(shape.ranks() - shape.fewest_per_host());
  cost.remote_steps = cost.steps;
  cost.remote_bytes = cost.bytes / others * abroad + cost.bytes % others * abroad / others;
  return cost;
}

}  // namespace horo::collective
