// Each member has a device of its own, and a library of the devices' maker moves the data between them.
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "horo/base/text.h"
#include "horo/group/device_lane.h"
#include "horo/group/device_wait.h"

namespace horo::group {

using collective::Kind;
using collective::Operation;

namespace {

static_assert(static_cast<int>(Kind::kAllreduce) == HORO_DEVICE_ALLREDUCE);
static_assert(static_cast<int>(Kind::kAlltoall) == HORO_DEVICE_ALLTOALL);
static_assert(static_cast<int>(Kind::kSendRecv) == HORO_DEVICE_SENDRECV);

struct Introduction {
  device::Identity identity{};
  uint32_t known = 0;
  uint32_t holds = 0;  ///< 1: its queues can be held; 2: in turns, too.
};

struct Offer {
  int32_t version = 0;  ///< 0: cannot.
  device::FabricId id{};
};

bool same_device(const Introduction& a, const Introduction& b) {
  return a.known != 0 && b.known != 0 && std::memcmp(a.identity.uuid, b.identity.uuid, sizeof a.identity.uuid) == 0;
}

bool may_be_in_place(Kind kind) {
  return kind == Kind::kAllreduce || kind == Kind::kReduce || kind == Kind::kBroadcast;
}

}  // namespace

// Equal on all members: what differs between them (an alltoall's total) is not asked.
bool DeviceOperations::may_use_fabric(const Call& call) const {
  const Operation& operation = call.operation;
  const bool wanted = terms_.path == DevicePath::kFabric || (terms_.path == DevicePath::kAuto && size() > 1);
  if (!wanted || !fabric_works_ || call.lane->devices.table().fabric_version == nullptr) return false;
  if (operation.kind != Kind::kAlltoall && operation.total() == 0) return false;
  if (!operation.reduces()) return true;
  return call.lane->devices.fabric_reduces(static_cast<int>(operation.dtype), static_cast<int>(operation.op));
}

Result<std::vector<DeviceOperations::Arrival>> DeviceOperations::arrive(Call& call) const {
  std::vector<Arrival> all(static_cast<size_t>(size()), call.arrival());
  if (size() == 1) return all;
  HORO_TRY(call.gather(call.arrival(), all));
  HORO_TRY(compare(call, all));
  if (call.operation.kind == Kind::kAlltoall) HORO_TRY(compare_alltoall(call));
  return all;
}

// The library would wait for ever for what nobody sends.
Status DeviceOperations::compare_alltoall(Call& call) const {
  const auto members = static_cast<size_t>(size());
  std::vector<uint64_t> mine = call.operation.counts;
  mine.insert(mine.end(), call.operation.receive_counts.begin(), call.operation.receive_counts.end());
  std::vector<uint64_t>& all = call.splits;
  all.resize(2 * members * members);
  Operation gathering;
  gathering.kind = Kind::kAllgather;
  gathering.dtype = DType::kU64;
  gathering.counts.assign(members, 2 * members);
  HORO_TRY(call.on_host(gathering, mine.data(), all.data()));
  for (size_t from = 0; from < members; ++from) {
    for (size_t to = 0; to < members; ++to) {
      const uint64_t sent = all[2 * members * from + to], expected = all[2 * members * to + members + from];
      if (sent == expected) continue;
      call.host_failed = true;  // All members find the same.
      return {Code::kMismatch, text("alltoall: rank ", terms_.ranks[from], " sends ", sent, " elements to rank ",
                                    terms_.ranks[to], ", which expects ", expected)};
    }
  }
  return {};
}

// At the first operation of the group: who shares a device with whom.
Status DeviceOperations::introduce(Call& call) {
  introduced_ = true;
  Introduction mine{};
  if (Result<device::Identity> own = call.lane->devices.identify(call.operation.where.device); own.ok()) {
    mine.identity = *own;
    mine.known = 1;
  }
  const bool may_hold = board_ != nullptr && call.lane->devices.has_holds() && terms_.hold != DeviceHold::kNever;
  mine.holds = !may_hold ? 0 : terms_.hold == DeviceHold::kAlways ? 2 : 1;
  std::vector<Introduction> all(static_cast<size_t>(size()), mine);
  if (size() > 1) HORO_TRY(call.gather(mine, all));
  in_turns_ = std::all_of(all.begin(), all.end(), [&](const Introduction& one) {
    return same_device(one, all[0]) && one.identity.in_turns != 0;
  });
  const auto all_hold = [&](uint32_t least) {
    return std::all_of(all.begin(), all.end(), [&](const Introduction& one) { return one.holds >= least; });
  };
  flies_ = all_hold(1);
  holds_ = all_hold(in_turns_ ? 2 : 1);  // In turns each hold costs a turn.
  if (size() == 1) return {};
  for (size_t second = 0; second < all.size(); ++second) {
    const auto first = std::find_if(
        all.begin(), all.end(), [&](const auto& one) { return &one == &all[second] || same_device(one, all[second]); });
    fabric_works_ = fabric_works_ && all[second].known != 0;
    if (&*first == &all[second]) continue;
    fabric_works_ = false;
    shared_ = text("ranks ", terms_.ranks[static_cast<size_t>(first - all.begin())], " and ", terms_.ranks[second],
                   " use one GPU (", all[second].identity.address, ")");
    if (static_cast<int>(second) == member_ && !terms_.share && source_.first_warning()) {
      host_.warn(text(shared_,
                      ": give each its own (torch.cuda.set_device(hvd.local_rank()), or horo run "
                      "--gpus-per-rank 1), or say that it is meant so (horo run --share-gpus)"));
    }
  }
  if (terms_.path == DevicePath::kFabric && !fabric_works_) {
    return cannot_use_fabric(call, shared_.empty() ? "a rank does not know which GPU it uses" : shared_);
  }
  return {};
}

// All members say the same. Where nobody insists, another way is taken.
Status DeviceOperations::cannot_use_fabric(Call& call, const std::string& why) {
  fabric_works_ = false;
  if (terms_.path != DevicePath::kFabric) return {};
  call.host_failed = true;
  return {Code::kUnavailable, text("HORO_DEVICE_PATH=nccl, but ", why, "; unset it to take another way")};
}

Result<std::shared_ptr<FabricLink>> DeviceOperations::fabric(Call& call, const std::vector<Arrival>& all) {
  std::vector<int> devices;
  for (const Arrival& one : all) devices.push_back(one.device);
  if (auto found = fabrics_.find(devices); found != fabrics_.end()) return found->second;
  HORO_ASSIGN(auto made, connect(call));
  if (made == nullptr) return std::shared_ptr<FabricLink>();
  return fabrics_[devices] = std::make_shared<FabricLink>(std::move(made));
}

void DeviceOperations::abort_fabrics() {
  for (auto& [devices, fabric] : fabrics_) fabric->abort();
  fabrics_.clear();
}

// Null when the members have agreed that it does not work.
Result<std::unique_ptr<device::Communicator>> DeviceOperations::connect(Call& call) {
  HORO_ASSIGN(const device::FabricId id, agree_on_id(call));
  std::unique_ptr<device::Communicator> made;
  if (!fabric_works_) return made;
  const int device = call.operation.where.device;
  Result<std::unique_ptr<device::Communicator>> opened =
      device::Communicator::open(call.lane->devices, device, id, size(), member_);
  Status outcome = opened.status();
  if (opened.ok()) {
    made = std::move(*opened);
    outcome = await([&] { return made->poll(); }, Deadline::after(terms_.limit).earlier(call.deadline));
    if (!outcome.ok()) made->abort();
  }
  if (!outcome.ok() && !host_.is_over()) {
    host_.warn(text("device ", device, " cannot be connected with those of the other ranks: ", outcome.message()));
  }
  if (size() == 1) {
    HORO_TRY(outcome);
    return made;
  }
  HORO_ASSIGN(const bool anybody, call.any(!outcome.ok()));
  if (!anybody) return made;
  HORO_TRY(cannot_use_fabric(call, "NCCL did not connect the GPUs of all ranks (their warnings say more)"));
  return std::unique_ptr<device::Communicator>();
}

// Over the group's own channel, which knows who is who.
Result<device::FabricId> DeviceOperations::agree_on_id(Call& call) {
  Offer mine{};
  Result<int> version = call.lane->devices.fabric_version();
  Status usable = version.status();
  if (usable.ok() && member_ == 0) {
    Result<device::FabricId> id = call.lane->devices.fabric_id();
    usable = id.status();
    if (id.ok()) mine.id = *id;
  }
  if (size() == 1) {
    HORO_TRY(usable);
    return mine.id;
  }
  if (usable.ok()) {
    mine.version = *version;
  } else {
    host_.warn(text("GPUs are not connected by NCCL: ", usable.message()));
  }
  std::vector<Offer> all(static_cast<size_t>(size()));
  HORO_TRY(call.gather(mine, all));
  for (size_t m = 0; m < all.size(); ++m) {
    if (all[m].version == all[0].version && all[m].version != 0) continue;
    const auto has = [](const Offer& one) { return one.version == 0 ? "none" : text("version ", one.version); };
    HORO_TRY(cannot_use_fabric(
        call, text("rank ", terms_.ranks[0], " has NCCL ", has(all[0]), ", rank ", terms_.ranks[m], " ", has(all[m]))));
    break;
  }
  return all[0].id;
}

Status DeviceOperations::await(const std::function<Result<bool>()>& done, Deadline deadline) const {
  DeviceWait wait(host_);
  while (true) {
    HORO_ASSIGN(const bool is_done, done());
    if (is_done) return {};
    if (host_.is_over()) return {Code::kStopped, "the group is over"};
    if (deadline.expired()) return {Code::kTimeout, "the other ranks' devices did not answer in time"};
    wait.pause(true);
  }
}

Status DeviceOperations::on_fabric(Call& call, FabricLink& fabric, bool may_fly) {
  ran_ = "nccl";
  Status status = run_collective(call, fabric, may_fly);
  if (call.flies) return status;
  if (status.ok()) return size() == 1 ? status : call.barrier();
  return fabric_failed(call, status);
}

Status DeviceOperations::run_collective(Call& call, FabricLink& fabric, bool may_fly) {
  const Operation& operation = call.operation;
  device::Queue& queue = *call.lane->queue;
  const uint64_t given = operation.input_count(member_), taken = operation.result_count(member_);
  Factors factors = operation.reduces() ? factors_of(operation) : Factors{};
  ReduceOp op = operation.op;
  if (operation.reduces() && op == ReduceOp::kAverage) {
    const bool plain = operation.prescale == 1.0 && operation.postscale == 1.0 && is_float(operation.dtype);
    if (plain) factors.after = {};
    if (!plain) op = ReduceOp::kSum;
  }
  const std::byte* in = call.in;
  const auto scale = [&](std::byte* to, const std::byte* from, uint64_t count, double before, kernel::Scaling after) {
    const void* source[] = {from};
    return queue.reduce({.dtype = static_cast<int>(operation.dtype),
                         .op = static_cast<int>(ReduceOp::kSum),
                         .count = count,
                         .from = source,
                         .sources = 1,
                         .to = to,
                         .also = nullptr,
                         .before = before,
                         .factor = after.factor,
                         .divisor = after.divisor});
  };
  const bool clash = !may_be_in_place(operation.kind) && given > 0 && taken > 0 &&
                     overlap(in, given * call.element(), call.out, taken * call.element());
  if (factors.before != 1.0 || clash) {
    HORO_TRY(call.lane->ensure_window(given * call.element()));
    std::byte* const aside = call.lane->window->base;
    HORO_TRY(factors.before != 1.0 ? scale(aside, in, given, factors.before, {})
                                   : queue.copy(aside, in, given * call.element()));
    in = aside;
  }
  call.touched = call.in == call.out || clash;
  const auto look = [&] { return fabric.poll(); };
  HORO_ASSIGN(const bool queued, fabric.put(queue, {.kind = static_cast<int>(operation.kind),
                                                    .dtype = static_cast<int>(operation.dtype),
                                                    .op = static_cast<int>(op),
                                                    .root = operation.root,
                                                    .target = operation.target,
                                                    .count = operation.count,
                                                    .counts = operation.counts.data(),
                                                    .receive_counts = operation.receive_counts.data(),
                                                    .in = in,
                                                    .out = call.out}));
  if (!queued) HORO_TRY(await(look, call.deadline));
  if (operation.reduces() && taken > 0 && !factors.after.none()) {
    HORO_TRY(scale(call.out, call.out, taken, 1.0, factors.after));
  }
  HORO_TRY(call.follow());
  if (may_fly) return call.fly(call.touched);
  if (call.sequel.promise) HORO_TRY(call.all_queued().status());
  HORO_TRY(queue.mark());
  int looks = 0;
  const auto ran = [&]() -> Result<bool> {
    HORO_ASSIGN(const bool is_done, queue.poll());
    if (is_done) return true;
    if (++looks % kLooksForOne == 0) HORO_TRY(look().status());
    return false;
  };
  return await(ran, call.deadline);
}

// The library is aborted, so that its work leaves the device. Then, if a member is gone, the host's plane says the same
// to all survivors; if not, this member ends the group for all.
Status DeviceOperations::fabric_failed(Call& call, const Status& why) {
  abort_fabrics();
  if (call.lane->queue->mark().ok()) {
    const Deadline limit = Deadline::after(kDrainLimit);
    Result<bool> drained = call.lane->queue->poll();
    while (drained.ok() && !*drained && !limit.expired()) {
      sched_yield();
      drained = call.lane->queue->poll();
    }
  }
  if (size() > 1 && why.code() != Code::kTimeout) {
    if (!host_.is_over()) host_.wait_over(kReasonLimit);
    if (host_.is_over()) {
      Status said = call.barrier();
      return said.ok() ? why : said;
    }
  }
  return why;
}

}  // namespace horo::group
