// How each kind of operation passes through the two levels.
#include <algorithm>
#include <numeric>

#include "horo/collective/direct/collectives.h"
#include "horo/group/hierarchy_plane.h"
#include "horo/kernel/reduce.h"

namespace horo::group {

using collective::Cut;
using collective::Kind;
using collective::Operation;
using collective::Run;

namespace {

constexpr size_t kPlansKept = 32;

uint64_t bytes_before(const Operation& operation, int member) {
  const auto first = operation.counts.begin();
  return std::accumulate(first, first + member, uint64_t{0}) * size_of(operation.dtype);
}

/// Elements that lane `lane` of `lanes` carries of `run`.
Run lane_part(Run run, int lanes, int lane) {
  return lane < lanes ? Cut(run, static_cast<uint64_t>(lanes)).part(static_cast<uint64_t>(lane)) : Run{};
}

/// Bytes at the beginning of a reducescatter's slots that are kept for the result; the host's sums lie behind them.
uint64_t result_bytes(const Levels& levels, const Operation& operation, int lanes) {
  const Run run = run_of_host(levels, operation, levels.host);
  return Cut(run, static_cast<uint64_t>(lanes)).longest() * size_of(operation.dtype);
}

}  // namespace

Status HierarchyPlane::commit_slot(uint64_t bytes) {
  uint64_t& already = committed_[turn_ & 1];
  if (bytes <= already) return {};
  HORO_TRY(host_.commit({own_slot(), host_.slot_bytes}, bytes, already));
  already = bytes;
  return {};
}

// A pass of its own, as on the mesh: what is too large for the slots must have the same bits.
Result<const std::byte*> HierarchyPlane::prescaled(const Job& job) {
  const kernel::Scaling before = collective::scaling_before(job.operation);
  if (before.none()) return job.in;
  kernel::DefaultFloatMode float_mode;
  HORO_TRY(scaled_.ensure(job.operation.total_bytes()));
  kernel::scale(job.operation.dtype)(scaled_.memory.get(), job.in, job.operation.total(), before);
  return static_cast<const std::byte*>(scaled_.memory.get());
}

Status HierarchyPlane::bring(const Job& job, const Call& call) {
  const Operation& operation = job.operation;
  if (operation.total() == 0) return protocol_.meet(call, {});
  Status room = commit_slot(own_slot_bytes(operation));
  if (!room.ok()) return protocol_.refuse(call, room);
  if (operation.reduces()) return bring_sums(job, call);
  const bool is_root = operation.root == levels_.member;
  uint64_t bytes = 0;
  if (operation.kind == Kind::kAllgather || operation.kind == Kind::kGather) {
    bytes = operation.counts[static_cast<size_t>(levels_.member)] * size_of(operation.dtype);
  } else if (is_root) {
    bytes = operation.total_bytes();
  }
  if (bytes > 0) kernel::copy(own_slot(), job.in, bytes);
  return protocol_.meet(call, {});
}

uint64_t HierarchyPlane::own_slot_bytes(const Operation& operation) const {
  const size_t element = size_of(operation.dtype);
  const int lanes = lanes_of(operation);
  const bool is_root = operation.root == levels_.member;
  switch (operation.kind) {
    case Kind::kAllreduce:
    case Kind::kReduce:
      return lane_part({0, operation.count}, lanes, levels_.place).count * element;
    case Kind::kBroadcast:
      return is_root ? operation.total_bytes() : lane_part({0, operation.count}, lanes, levels_.place).count * element;
    case Kind::kReduceScatter: {
      uint64_t bytes = result_bytes(levels_, operation, lanes);
      for (size_t host = 0; host < levels_.hosts(); ++host) {
        bytes += lane_part(run_of_host(levels_, operation, host), lanes, levels_.place).count * element;
      }
      return levels_.place < lanes ? bytes : 0;
    }
    default:
      break;
  }
  const bool scatters = operation.kind == Kind::kScatter;
  if (scatters && is_root) return operation.total_bytes();
  uint64_t bytes = scatters ? 0 : operation.counts[static_cast<size_t>(levels_.member)] * element;
  for (const Crossing& one :
       crossings(levels_, operation, levels_.host, scatters ? Blocks::kOfItsOwn : Blocks::kOfOthers)) {
    if (one.lane == levels_.place) bytes = std::max(bytes, one.offset + one.bytes);
  }
  return bytes;
}

// The driver of a lane sums what the members of its host give to the lane, in rank order.
Status HierarchyPlane::bring_sums(const Job& job, const Call& call) {
  const Operation& operation = job.operation;
  const Result<const std::byte*> scaled = prescaled(job);
  if (!scaled.ok()) return protocol_.refuse(call, scaled.status());
  const std::byte* const in = *scaled;
  if (operation.kind != Kind::kReduceScatter) {
    return reduce_in_host(call, operation, {0, operation.count}, in, own_slot());
  }
  const int lanes = lanes_of(operation);
  std::byte* out = own_slot() + result_bytes(levels_, operation, lanes);
  for (size_t host = 0; host < levels_.hosts(); ++host) {
    const Run run = run_of_host(levels_, operation, host);
    if (run.count == 0) continue;
    HORO_TRY(reduce_in_host(call, operation, run, in, out));
    out += lane_part(run, lanes, levels_.place).count * size_of(operation.dtype);
  }
  return {};
}

Status HierarchyPlane::reduce_in_host(const Call& call, const Operation& operation, Run run, const std::byte* in,
                                      std::byte* out) {
  const std::byte* from = in + run.offset * size_of(operation.dtype);
  if (protocol_.size() == 1) {
    kernel::copy(out, from, run.count * size_of(operation.dtype));
    return protocol_.meet(call, {});
  }
  Operation part;
  part.kind = Kind::kReduceScatter;
  part.dtype = operation.dtype;
  part.op = operation.op == ReduceOp::kAverage ? ReduceOp::kSum : operation.op;
  for (int place = 0; place < protocol_.size(); ++place) {
    part.counts.push_back(lane_part(run, lanes_of(operation), place).count);
  }
  return collective::direct::run(protocol_, call, part, from, out);
}

Status HierarchyPlane::cross(const Job& job, const Call& call) {
  const Operation& operation = job.operation;
  lane_.begin(call.number, call.signature);
  if (operation.total() == 0) return levels_.place == 0 ? confirm(lane_, call.deadline) : Status();
  if (!operation.reduces() && operation.kind != Kind::kBroadcast) return cross_blocks(job);
  const int lanes = lanes_of(operation);
  if (levels_.place >= lanes) return {};
  HORO_TRY(cross_by_plan(job, lanes));
  // The root would run ahead: its data does not tell it that anybody came.
  return operation.kind == Kind::kBroadcast ? confirm(lane_, call.deadline) : Status();
}

Status HierarchyPlane::cross_by_plan(const Job& job, int lanes) {
  const Operation& operation = job.operation;
  HORO_ASSIGN(const collective::Plan* plan, plan_for(operation, lanes));
  if (const Status room = scratch_.ensure(plan->scratch_bytes()); !room.ok()) return lane_.refuse(job.number, room);
  collective::Buffers buffers{own_slot(), nullptr, own_slot(), scratch_.memory.get()};
  if (operation.kind == Kind::kReduceScatter) buffers.input += result_bytes(levels_, operation, lanes);
  if (operation.kind == Kind::kBroadcast && levels_.shape.host_of(operation.root) == levels_.host) {
    const uint64_t offset = lane_part({0, operation.count}, lanes, levels_.place).offset * size_of(operation.dtype);
    buffers.input = slot_of(levels_.place_of(operation.root)) + offset;
    if (operation.root == levels_.member) buffers.work += offset;
  }
  return executor_.run(*plan, buffers, job.deadline);
}

// A lane is a group of as many members as there are hosts, but what it reduces is scaled as the whole group's.
Result<const collective::Plan*> HierarchyPlane::plan_for(const Operation& operation, int lanes) {
  for (const auto& [known, plan] : plans_) {
    if (known == operation) return &plan;
  }
  Operation lane;
  lane.kind = operation.kind == Kind::kReduce ? Kind::kAllreduce : operation.kind;
  lane.dtype = operation.dtype;
  lane.op = operation.op == ReduceOp::kAverage ? ReduceOp::kSum : operation.op;
  if (operation.kind == Kind::kReduceScatter) {
    for (size_t host = 0; host < levels_.hosts(); ++host) {
      lane.counts.push_back(lane_part(run_of_host(levels_, operation, host), lanes, levels_.place).count);
    }
  } else {
    lane.count = lane_part({0, operation.count}, lanes, levels_.place).count;
    if (operation.kind == Kind::kBroadcast) lane.root = static_cast<int>(levels_.shape.host_of(operation.root));
  }
  std::vector<int> each_its_own(levels_.hosts());
  std::iota(each_its_own.begin(), each_its_own.end(), 0);
  const collective::Shape shape(each_its_own);
  const collective::Arithmetic arithmetic{lane.dtype, lane.op, {}, scaling_after(operation, levels_.shape.ranks())};
  const int self = lane_.rank();
  collective::Draft draft;
  std::string_view name = "none";
  if (lane.total() > 0) {
    HORO_ASSIGN(const collective::Algorithm* algorithm, collective::select(lane, shape, table_));
    algorithm->draft({lane, shape, table_, arithmetic, self, {collective::Buffer::kInput, 0}, 0}, draft);
    name = algorithm->name;
  }
  collective::Plan plan = std::move(draft).finish(arithmetic);
  plan.algorithm = name;
  plan.rank = self;
  plans_.emplace_front(operation, std::move(plan));
  if (plans_.size() > kPlansKept) plans_.pop_back();
  return &plans_.front().second;
}

// Blocks of members cross in the lane of their owner, straight out of the shared memory of their host and into the slot
// of the driver on the other one.
Status HierarchyPlane::cross_blocks(const Job& job) {
  const Operation& operation = job.operation;
  const bool scatters = operation.kind == Kind::kScatter;
  const bool rooted = operation.kind != Kind::kAllgather;
  const Blocks which = scatters ? Blocks::kOfItsOwn : Blocks::kOfOthers;
  const size_t home = levels_.shape.host_of(operation.root);
  for (size_t to = 0; to < levels_.hosts(); ++to) {
    // A scatter goes from the root's host to the others, a gather from the others to it.
    if (rooted && (to == home) == scatters) continue;
    for (const Crossing& one : crossings(levels_, operation, to, which)) {
      const size_t from = scatters ? home : levels_.shape.host_of(one.member);
      if (one.lane != levels_.place || (from == levels_.host) == (to == levels_.host)) continue;
      if (to == levels_.host) {
        lane_.receive(static_cast<int>(from), one.bytes, {.into = own_slot() + one.offset});
      } else if (from == levels_.host) {
        const std::byte* block = scatters
                                     ? slot_of(levels_.place_of(operation.root)) + bytes_before(operation, one.member)
                                     : slot_of(levels_.place_of(one.member));
        lane_.send(static_cast<int>(to), {block, one.bytes});
      }
    }
  }
  return lane_.wait(job.deadline);
}

std::vector<HierarchyPlane::Piece> HierarchyPlane::pieces_of(const Operation& operation) const {
  const size_t element = size_of(operation.dtype);
  const int lanes = lanes_of(operation);
  const bool at_home = levels_.shape.host_of(operation.root) == levels_.host;
  const std::byte* roots = at_home ? slot_of(levels_.place_of(operation.root)) : nullptr;
  std::vector<Piece> pieces;
  if (operation.total() == 0) return pieces;
  switch (operation.kind) {
    case Kind::kBroadcast:
      if (at_home) {
        pieces.push_back({roots, operation.total_bytes(), 0});
        break;
      }
      [[fallthrough]];
    case Kind::kAllreduce:
    case Kind::kReduce:
      for (int lane = 0; lane < lanes; ++lane) {
        const Run part = lane_part({0, operation.count}, lanes, lane);
        pieces.push_back({slot_of(lane), part.count * element, part.offset * element});
      }
      break;
    case Kind::kReduceScatter:
      append_reduced_block(operation, pieces);
      break;
    case Kind::kGather:
      if (at_home) append_blocks(operation, pieces);
      break;
    case Kind::kAllgather:
      append_blocks(operation, pieces);
      break;
    case Kind::kScatter:
      if (at_home) {
        const uint64_t own = operation.counts[static_cast<size_t>(levels_.member)] * element;
        pieces.push_back({roots + bytes_before(operation, levels_.member), own, 0});
        break;
      }
      for (const Crossing& one : crossings(levels_, operation, levels_.host, Blocks::kOfItsOwn)) {
        if (one.member == levels_.member) pieces.push_back({slot_of(one.lane) + one.offset, one.bytes, 0});
      }
      break;
    default:
      break;
  }
  return pieces;
}

void HierarchyPlane::append_blocks(const Operation& operation, std::vector<Piece>& pieces) const {
  for (int member : levels_.local) {
    const uint64_t bytes = operation.counts[static_cast<size_t>(member)] * size_of(operation.dtype);
    pieces.push_back({slot_of(levels_.place_of(member)), bytes, bytes_before(operation, member)});
  }
  for (const Crossing& one : crossings(levels_, operation, levels_.host, Blocks::kOfOthers)) {
    pieces.push_back({slot_of(one.lane) + one.offset, one.bytes, bytes_before(operation, one.member)});
  }
}

/// This member's block, out of its host's run, which the lanes cut anew.
void HierarchyPlane::append_reduced_block(const Operation& operation, std::vector<Piece>& pieces) const {
  const size_t element = size_of(operation.dtype);
  const int lanes = lanes_of(operation);
  const Run run = run_of_host(levels_, operation, levels_.host);
  const uint64_t begin = bytes_before(operation, levels_.member) / element;
  const uint64_t end = begin + operation.counts[static_cast<size_t>(levels_.member)];
  for (int lane = 0; lane < lanes; ++lane) {
    const Run part = lane_part(run, lanes, lane);
    const uint64_t from = std::max(begin, part.offset);
    const uint64_t to = std::min(end, part.end());
    if (from >= to) continue;
    pieces.push_back({slot_of(lane) + (from - part.offset) * element, (to - from) * element, (from - begin) * element});
  }
}

}  // namespace horo::group
