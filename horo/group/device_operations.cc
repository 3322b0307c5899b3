#include "horo/group/device_operations.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <numeric>
#include <utility>

#include "horo/base/text.h"
#include "horo/group/device_lane.h"
#include "horo/group/signature.h"

namespace horo::group {

using collective::Kind;
using collective::Operation;

namespace {

constexpr uint64_t kPiece = 16 << 20;  ///< Of what is staged: while one is reduced, the next comes.
constexpr uint64_t kLeastWindow = 4 << 20;
/// Up to here two transfers and an operation of the host take less time than work of several devices' contexts.
constexpr uint64_t kSmall = 128 << 10;
constexpr int kMostMembers = 64;
constexpr auto kLook = std::chrono::milliseconds(1);

uint64_t room_for(uint64_t bytes) {
  uint64_t room = kLeastWindow;
  while (room < bytes) room *= 2;
  return room;
}

bool is_elementwise(Kind kind) { return kind == Kind::kAllreduce || kind == Kind::kReduce || kind == Kind::kBroadcast; }

}  // namespace

DeviceOperations::Lane::~Lane() {
  for (const auto& [key, memory] : mapped) devices.close(queue->device(), memory);
  if (window) devices.free(window->base);
  for (const device::Exported& old : old_windows) devices.free(old.base);
  if (pinned != nullptr) devices.free_host(queue->device(), pinned);
}

Status DeviceOperations::Lane::ensure_window(uint64_t bytes) {
  if (window && window->bytes >= bytes) return {};
  HORO_ASSIGN(device::Exported made, devices.allocate(queue->device(), room_for(bytes)));
  if (window) old_windows.push_back(*window);
  window = made;
  return {};
}

Status DeviceOperations::Lane::ensure_pinned(uint64_t bytes) {
  if (pinned_bytes >= bytes) return {};
  HORO_ASSIGN(std::byte * made, devices.allocate_host(queue->device(), room_for(bytes)));
  if (pinned != nullptr) devices.free_host(queue->device(), pinned);
  pinned = made;
  pinned_bytes = room_for(bytes);
  return {};
}

Status DeviceOperations::Call::on_host(const Operation& small, const void* from, void* to) {
  Operation step = small;
  step.for_device = true;
  Status status = run_on_host(step, static_cast<const std::byte*>(from), static_cast<std::byte*>(to));
  host_failed = host_failed || !status.ok();
  return touched && !status.ok() ? status.with_contents_lost() : status;
}

Result<bool> DeviceOperations::Call::any(bool mine) {
  Operation vote;
  vote.kind = Kind::kAllreduce;
  vote.dtype = DType::kU32;
  vote.op = ReduceOp::kMax;
  vote.count = 1;
  const uint32_t own = mine ? 1 : 0;
  uint32_t all = 0;
  HORO_TRY(on_host(vote, &own, &all));
  return all != 0;
}

DeviceOperations::Arrival DeviceOperations::Call::arrival() const {
  return {
      .signature = signature_of(operation, 0), .device = operation.where.device, .may_fly = relay == nullptr ? 0U : 1U};
}

DeviceOperations::DeviceOperations(device::Source& source, DeviceTerms terms, DeviceHost& host, DeviceBoard* board)
    : source_(source), terms_(std::move(terms)), member_(terms_.member), host_(host), board_(board) {}

// What is still there has not failed: after a failure everything is aborted at once.
DeviceOperations::~DeviceOperations() {
  wait_idle();
  for (auto& [device, lane] : lanes_) (void)lane->queue->finish(false);  // A hold that is open may be looked at still.
  relay_.reset();
  for (auto& [devices, fabric] : fabrics_) fabric->close();
}

void DeviceOperations::take_relay(Call& call, bool holds) {
  const int device = call.lane->queue->device();
  if (relay_device_ < 0 && flies_) {
    relay_device_ = device;
    relay_ = DeviceRelay::open(call.lane->devices, device, *board_, host_);
  }
  if (relay_ != nullptr && device == relay_device_ && relay_->begin(holds)) call.relay = relay_.get();
}

void DeviceOperations::leave_relay(Call& call) {
  if (call.relay != nullptr) call.relay->cancel();
  call.relay = nullptr;
}

Result<DeviceOperations::Lane*> DeviceOperations::lane(int device) {
  auto found = lanes_.find(device);
  if (found == lanes_.end()) {
    HORO_ASSIGN(device::Devices * devices, source_.get());
    HORO_TRY(devices->usable());
    HORO_ASSIGN(std::unique_ptr<device::Queue> queue, device::Queue::open(*devices, device));
    found = lanes_.emplace(device, std::make_unique<Lane>(*devices, std::move(queue))).first;
  }
  return found->second.get();
}

Status DeviceOperations::Call::follow() { return sequel.steps ? sequel.steps(*lane->queue) : Status(); }

Status DeviceOperations::Call::fly(bool touches_input) {
  if (touches_input) touched_after = relay->points();
  HORO_TRY(relay->reach(*lane->queue).status());
  flies = true;
  return {};
}

Result<device::EventHandle> DeviceOperations::Call::all_queued() const {
  HORO_ASSIGN(device::EventHandle end, lane->queue->record());
  if (sequel.promise) sequel.promise(end);
  return end;
}

namespace {

/// The outcome of an operation, for the thread that waits for it. Who tells it is late by as much as a step takes if
/// this thread sleeps, so it looks for a while.
class Landing {
 public:
  void set(const Status& outcome) {
    std::lock_guard lock(mutex_);
    outcome_ = outcome;
    is_set_.store(true, std::memory_order_release);
    changed_.notify_all();
  }
  Status wait() {
    const Deadline look = Deadline::after(kLook);
    while (!is_set_.load(std::memory_order_acquire) && !look.expired()) sched_yield();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return outcome_.has_value(); });
    return *outcome_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> is_set_{false};
  std::optional<Status> outcome_;
};

}  // namespace

Status DeviceOperations::run(const Operation& operation, const std::byte* in, std::byte* out, const OnHost& host,
                             Deadline deadline, bool may_spin, const device::Sequel& sequel) {
  const auto landing = std::make_shared<Landing>();
  const auto landed = [landing](const Status& outcome) { landing->set(outcome); };
  const std::optional<Status> status = start(operation, in, out, host, deadline, may_spin, sequel, landed);
  return status ? *status : landing->wait();
}

void DeviceOperations::wait_idle() {
  if (relay_ != nullptr) relay_->wait_idle();
}

std::optional<Status> DeviceOperations::start(const Operation& operation, const std::byte* in, std::byte* out,
                                              const OnHost& host, Deadline deadline, bool may_spin,
                                              const device::Sequel& sequel, DeviceRelay::Landed landed) {
  Call call{operation, in, out, host, deadline, may_spin, sequel};
  Status status;
  try {
    status = dispatch(call);
  } catch (const std::bad_alloc&) {
    status = Status(Code::kUnavailable, "there is no memory left");
    call.host_failed = false;  // Whatever the others know, they do not know this.
    if (!call.flies && call.fabric != nullptr) abort_fabrics();
    if (!call.flies && call.lane != nullptr) (void)call.finish();  // The input may be copied still.
  }
  const std::string what = text(transport::name(operation.kind), " on device ", operation.where.device);
  if (call.flies) {
    Result<device::EventHandle> end = status.ok() ? call.all_queued() : call.lane->queue->record();
    if (status.ok()) status = end.status();
    call.relay->launch({.what = what,
                        .deadline = deadline,
                        .touched_after = call.touched_after,
                        .queued = status,
                        .end = end.ok() ? *end : nullptr,
                        .landed = std::move(landed),
                        .fabric = call.fabric});
    return std::nullopt;
  }
  leave_relay(call);
  if (status.ok()) return status;
  if (status.code() == Code::kMismatch) return status.prefixed(what);
  if (status.code() != Code::kUnavailable) abort_fabrics();
  if (call.host_failed) return status;
  status = status.prefixed(what);
  if (size() > 1) host_.give_up(status);
  return call.touched ? status.with_contents_lost() : status;
}

Status DeviceOperations::dispatch(Call& call) {
  if (call.operation.kind == Kind::kBarrier) return call.barrier();
  HORO_ASSIGN(call.lane, lane(call.operation.where.device));
  HORO_TRY(call.lane->queue->wait(call.operation.where.ready));
  const bool by_fabric = may_use_fabric(call);
  if (size() == 1 && !introduced_) HORO_TRY(introduce(call));
  // Whoever waits for the result here has it sooner without the relay.
  if ((size() == 1 || by_fabric) && call.sequel.promise) take_relay(call, false);
  if (size() == 1 && !by_fabric) {
    ran_ = "local";
    return local(call);
  }
  if (by_fabric || !introduced_) {
    HORO_ASSIGN(const std::vector<Arrival> all, arrive(call));
    if (!introduced_) HORO_TRY(introduce(call));
    if (by_fabric && fabric_works_) {
      HORO_ASSIGN(call.fabric, fabric(call, all));
      const bool may_fly = std::all_of(all.begin(), all.end(), [](const Arrival& one) { return one.may_fly != 0; });
      if (call.fabric != nullptr) return on_fabric(call, *call.fabric, may_fly);
    }
    leave_relay(call);
  }
  if (!may_be_direct(call.operation)) return staged(call);
  HORO_ASSIGN(bool goes_direct, is_large(call));
  // On the host this thread would have to wait for the device to come so far.
  if (!goes_direct && holds_) {
    HORO_ASSIGN(goes_direct, call.any(!is_there(call)));
  }
  return goes_direct ? direct(call) : staged(call);
}

bool DeviceOperations::is_there(const Call& call) const {
  if (relay_ != nullptr && !relay_->is_idle()) return false;
  const device::EventHandle& ready = call.operation.where.ready;
  if (ready == nullptr) return true;
  const Result<bool> happened = call.lane->devices.has_happened(ready);
  return happened.ok() && *happened;
}

// Of an alltoall members send different amounts: the one that sends most decides, for all.
Result<bool> DeviceOperations::is_large(Call& call) const {
  const bool alltoall = call.operation.kind == Kind::kAlltoall;
  if (alltoall && call.splits.empty()) HORO_TRY(arrive(call).status());
  if (terms_.path == DevicePath::kDirect) return true;
  if (!alltoall) return call.operation.total_bytes() > kSmall;
  const auto members = static_cast<size_t>(size());
  uint64_t most = 0;
  for (size_t m = 0; m < members; ++m) {
    const auto sent = call.splits.begin() + static_cast<std::ptrdiff_t>(2 * members * m);
    most = std::max(most, std::accumulate(sent, sent + static_cast<std::ptrdiff_t>(members), uint64_t{0}));
  }
  return most * call.element() > kSmall;
}

Status DeviceOperations::compare(Call& call, const std::vector<Arrival>& all) const {
  const transport::Signature& own = all[0].signature;
  for (size_t m = 1; m < all.size(); ++m) {
    if (all[m].signature == own) continue;
    call.host_failed = true;  // All members find the same.
    return {Code::kMismatch,
            text("rank ", terms_.ranks[0], " calls ", own.to_string(), ", rank ", terms_.ranks[m], " calls ",
                 all[m].signature.to_string(), "; all ranks must make the same calls in the same order")};
  }
  return {};
}

DeviceOperations::Factors DeviceOperations::factors_of(const Operation& operation) const {
  Factors factors{operation.prescale, collective::scaling_after(operation, size())};
  const bool floats = is_float(operation.dtype) || is_complex(operation.dtype);
  if (floats && (operation.op == ReduceOp::kSum || operation.op == ReduceOp::kAverage)) {
    factors.after.factor *= std::exchange(factors.before, 1.0);
  }
  return factors;
}

Status DeviceOperations::local(Call& call) const {
  const Operation& operation = call.operation;
  if (operation.reduces()) {
    const kernel::Scaling after = collective::scaling_after(operation, 1);
    const void* from[] = {call.in};
    HORO_TRY(call.lane->queue->reduce({.dtype = static_cast<int>(operation.dtype),
                                       .op = static_cast<int>(ReduceOp::kSum),
                                       .count = operation.total(),
                                       .from = from,
                                       .sources = 1,
                                       .to = call.out,
                                       .also = nullptr,
                                       .before = operation.prescale,
                                       .factor = after.factor,
                                       .divisor = after.divisor}));
  } else {
    HORO_TRY(call.lane->queue->copy(call.out, call.in, operation.result_count(0) * call.element()));
  }
  HORO_TRY(call.follow());
  return call.relay == nullptr ? call.finish() : call.fly(call.in == call.out);
}

Status DeviceOperations::staged(Call& call) {
  ran_ = "staged";
  return is_elementwise(call.operation.kind) ? staged_in_pieces(call) : staged_whole(call);
}

Status DeviceOperations::staged_in_pieces(Call& call) const {
  device::Queue& queue = *call.lane->queue;
  Operation piece = call.operation;
  piece.where = {};
  const uint64_t element = call.element(), total = call.operation.count, step = kPiece / element;
  const bool gives = call.operation.input_count(member_) > 0, takes = call.operation.result_count(member_) > 0;
  HORO_TRY(call.lane->ensure_pinned(std::min(total, 2 * step) * element));
  const auto buffer = [&](uint64_t first) { return call.lane->pinned + first / step % 2 * step * element; };
  const auto count = [&](uint64_t first) { return std::min(step, total - first); };
  const auto fetch = [&](uint64_t first) {
    return gives ? queue.transfer(buffer(first), call.in + first * element, count(first) * element) : Status();
  };
  HORO_TRY(fetch(0));
  for (uint64_t first = 0; first < total || first == 0; first += step) {
    HORO_TRY(call.finish());
    if (first + step < total) HORO_TRY(fetch(first + step));
    piece.count = count(first);
    HORO_TRY(call.on_host(piece, buffer(first), buffer(first)));
    if (!takes) continue;
    call.touched = call.touched || call.in == call.out;
    HORO_TRY(queue.transfer(call.out + first * element, buffer(first), count(first) * element));
  }
  return call.finish();
}

Status DeviceOperations::staged_whole(Call& call) const {
  device::Queue& queue = *call.lane->queue;
  Operation whole = call.operation;
  whole.where = {};
  const uint64_t given = whole.input_count(member_) * call.element();
  const uint64_t taken = whole.result_count(member_) * call.element();
  const uint64_t result = (given + 63) / 64 * 64;
  HORO_TRY(call.lane->ensure_pinned(std::max<uint64_t>(result + taken, 1)));
  HORO_TRY(queue.transfer(call.lane->pinned, call.in, given));
  HORO_TRY(call.finish());
  HORO_TRY(call.on_host(whole, call.lane->pinned, call.lane->pinned + result));
  HORO_TRY(queue.transfer(call.out, call.lane->pinned + result, taken));
  return call.finish();
}

bool DeviceOperations::may_be_direct(const Operation& operation) const {
  const bool known = operation.kind == Kind::kAllreduce || operation.kind == Kind::kReduceScatter ||
                     operation.kind == Kind::kBroadcast || operation.kind == Kind::kAllgather ||
                     operation.kind == Kind::kAlltoall;
  const bool complex_product = is_complex(operation.dtype) && operation.op == ReduceOp::kProduct;
  if (!known || (operation.reduces() && complex_product)) return false;
  if (terms_.path == DevicePath::kStaged || !mapping_works_) return false;
  if (terms_.shape.hosts().size() > 1 || size() > kMostMembers) return false;
  return operation.kind == Kind::kAlltoall || operation.total() > 0;  // The former may be empty on some members.
}

}  // namespace horo::group
