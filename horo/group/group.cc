#include "horo/group/group.h"

#include <algorithm>
#include <new>

#include "horo/base/check.h"
#include "horo/base/failpoint.h"
#include "horo/base/text.h"
#include "horo/group/device_operations.h"

namespace horo::group {

namespace {

std::unique_ptr<DeviceOperations> device_operations(const GroupOptions& options, DeviceHost& host, Plane& plane) {
  if (options.devices == nullptr) return nullptr;
  DeviceTerms terms{options.device_path, options.share_devices, options.device_hold, options.shape,
                    options.ranks,       options.member,        options.limit};
  return std::make_unique<DeviceOperations>(*options.devices, std::move(terms), host, plane.device_board());
}

}  // namespace

Group::Group(GroupOptions options, std::unique_ptr<Plane> plane, std::unique_ptr<transport::Watcher> watcher,
             GroupHost& host, Log& log)
    : options_(std::move(options)),
      watcher_(std::move(watcher)),
      plane_(std::move(plane)),
      host_(host),
      log_(log),
      on_devices_(device_operations(options_, *this, *plane_)),
      names_(options_.ranks) {}

Group::~Group() {
  stop(Status(Code::kStopped, "the group has ended"));
  join();  // Before anything that it uses goes.
}

// Nobody starts it any more: the group is over.
std::string_view Group::device_path_name() const { return on_devices_ ? on_devices_->path_name() : "none"; }

void Group::join() { worker_ = Thread(); }

bool Group::take_token() {
  bool free = false;
  return token_.compare_exchange_strong(free, true, std::memory_order_seq_cst);
}

// Sequentially consistent with queued_ and must_answer_: whoever sets one of those and finds the token taken relies on
// the holder to see it here.
void Group::leave_token() {
  token_.store(false, std::memory_order_seq_cst);
  if (must_answer_.load(std::memory_order_seq_cst)) answer_revocation();
  if (queued_.load(std::memory_order_seq_cst) > 0) {
    std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
}

Status Group::run(const collective::Operation& operation, const std::byte* in, std::byte* out, Deadline deadline,
                  bool may_spin, const device::Sequel& sequel) {
  if (queued_.load(std::memory_order_seq_cst) == 0 && take_token()) {
    struct Token {
      Group& group;
      ~Token() { group.leave_token(); }  // Where memory runs out, too.
    };
    const Token token{*this};
    HORO_TRY(check(operation, in, out));
    return execute(operation, in, out, deadline, may_spin, sequel);
  }
  HORO_ASSIGN(RequestHandle request, submit(operation, in, out, deadline));
  return request->wait(Deadline::never());
}

Result<RequestHandle> Group::submit(collective::Operation operation, const std::byte* in, std::byte* out,
                                    Deadline deadline, Callback callback) {
  HORO_TRY(check(operation, in, out));
  auto request = std::make_shared<Request>(std::move(operation), in, out, deadline, std::move(callback));
  std::lock_guard lock(mutex_);
  if (over_) return over_->prefixed("cannot submit");
  HORO_TRY(ensure_worker());
  queue_.push_back(request);
  queued_.fetch_add(1, std::memory_order_seq_cst);
  changed_.notify_all();
  return request;
}

Status Group::ensure_worker() {
  if (worker_.joinable()) return {};
  HORO_ASSIGN(worker_, Thread::start("horo-group", [this](const std::stop_token& stop) { work(stop); }));
  return worker_.stay_on(options_.core);
}

void Group::work(const std::stop_token& stop) {
  std::stop_callback wake(stop, [this] {
    std::lock_guard lock(mutex_);
    changed_.notify_all();
  });
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop.stop_requested() || (!queue_.empty() && take_token()); });
    if (queue_.empty() || stop.stop_requested()) return;
    RequestHandle request = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    const std::optional<Status> status = execute(request);
    queued_.fetch_sub(1, std::memory_order_seq_cst);
    leave_token();
    if (status) request->finish(*status);
    lock.lock();
  }
}

std::optional<Status> Group::execute(const RequestHandle& request) {
  const collective::Operation& operation = request->operation();
  if (!operation.where.on_device()) {
    return execute_on_host(operation, request->in(), request->out(), request->deadline(), false);
  }
  return execute_on_device(operation, request->in(), request->out(), request->deadline(),
                           {.promise = [&request](const device::EventHandle& result) { request->promise(result); }},
                           [request](const Status& outcome) { request->finish(outcome); });
}

std::optional<Status> Group::start(const collective::Operation& operation, const std::byte* in, std::byte* out,
                                   const device::Sequel& sequel, Callback landed) {
  if (!operation.where.on_device() || queued_.load(std::memory_order_seq_cst) > 0 || !take_token()) {
    return run(operation, in, out, Deadline::never(), false, sequel);
  }
  std::optional<Status> status = check(operation, in, out);
  if (status->ok()) {
    status = execute_on_device(operation, in, out, Deadline::never(), sequel, std::move(landed));
  }
  leave_token();
  return status;
}

void Group::stop(const Status& why, Leaving leaving) {
  std::deque<RequestHandle> rest;
  {
    std::lock_guard lock(mutex_);
    // Once: after that the other members may use the group's page for another group, which must not be revoked.
    if (stopped_) return;
    stopped_ = true;
    if (!over_) over_ = why;
    rest.swap(queue_);
    queued_.fetch_sub(rest.size(), std::memory_order_seq_cst);
    changed_.notify_all();
  }
  if (leaving == Leaving::kWholeRank) leaves_job_ = true;
  plane_->revoke(leaving == Leaving::kWholeRank ? std::vector<int>{options_.member} : std::vector<int>{});
  for (const RequestHandle& request : rest) request->finish(why);
  if (!is_over_.load(std::memory_order_acquire)) note_over();  // At the end of its life the engine may be gone.
  if (on_devices_ != nullptr) on_devices_->wait_idle();        // It uses the page of the group.
}

std::vector<int> Group::names() const {
  std::lock_guard lock(mutex_);
  return names_;
}

void Group::call_members(std::vector<int> names) {
  HORO_CHECK(names.size() == options_.ranks.size(), "every member has a name");
  std::lock_guard lock(mutex_);
  names_ = std::move(names);
}

std::vector<int> Group::gone() const {
  std::vector<int> ranks;
  for (int member : plane_->gone()) {
    if (member != options_.member) ranks.push_back(options_.ranks[static_cast<size_t>(member)]);
  }
  return ranks;
}

Status Group::check(const collective::Operation& operation, const std::byte* in, const std::byte* out) const {
  if (host_.forked()) {
    return {Code::kForked,
            "this process was forked from a rank; only the rank itself can call horo (start workers with "
            "spawn, or do not use horo in them)"};
  }
  HORO_TRY(collective::validate(operation, options_.shape, options_.member));
  if (operation.where.on_device() && on_devices_ == nullptr) {
    return {Code::kUnavailable, "this group has operations on the host's memory only"};
  }
  const bool needs_out = operation.result_count(options_.member) > 0;
  if (needs_out && out == nullptr) {
    return {Code::kInvalidArgument, text(transport::name(operation.kind), ": the output pointer is null")};
  }
  const bool gives = operation.kind != collective::Kind::kBroadcast && operation.kind != collective::Kind::kScatter &&
                     operation.kind != collective::Kind::kSendRecv;
  const bool gathers = operation.kind == collective::Kind::kAllgather || operation.kind == collective::Kind::kGather;
  const uint64_t given = gathers ? operation.counts[static_cast<size_t>(options_.member)] : operation.total();
  if (in == nullptr && given > 0 && (gives || operation.root == options_.member)) {
    return {Code::kInvalidArgument, text(transport::name(operation.kind), ": the input pointer is null")};
  }
  return {};
}

Status Group::execute(const collective::Operation& operation, const std::byte* in, std::byte* out, Deadline deadline,
                      bool may_spin, const device::Sequel& sequel) {
  if (!operation.where.on_device()) return execute_on_host(operation, in, out, deadline, may_spin);
  try {
    return on_devices_->run(operation, in, out, steps_on_host(deadline), deadline, may_spin, sequel);
  } catch (const std::bad_alloc&) {
    return out_of_memory(number_.load(std::memory_order_relaxed));
  }
}

std::optional<Status> Group::execute_on_device(const collective::Operation& operation, const std::byte* in,
                                               std::byte* out, Deadline deadline, const device::Sequel& sequel,
                                               Callback landed) {
  try {
    return on_devices_->start(operation, in, out, steps_on_host(deadline), deadline, false, sequel, std::move(landed));
  } catch (const std::bad_alloc&) {
    return out_of_memory(number_.load(std::memory_order_relaxed));
  }
}

// An operation on a device is made of several on the host, each with a number of its own.
OnHost Group::steps_on_host(Deadline deadline) {
  return [this, deadline](const collective::Operation& small, const std::byte* from, std::byte* to) {
    // Members come to these within moments of each other: the waiting that is allowed to be awake is short.
    return execute_on_host(small, from, to, deadline, true);
  };
}

Status Group::execute_on_host(const collective::Operation& operation, const std::byte* in, std::byte* out,
                              Deadline deadline, bool may_spin) {
  const uint64_t number = number_.load(std::memory_order_relaxed) + 1;
  number_.store(number, std::memory_order_seq_cst);
  const Job job{number, operation, in, out, deadline, may_spin};
  // Either this thread sees that a member has left, or the control thread sees this operation and revokes the plane.
  const bool all_come = number <= left_after_.load(std::memory_order_seq_cst);
  Status status(Code::kStopped, "a member has left the group");
  try {
    if (all_come) status = plane_->run(job);
  } catch (const std::bad_alloc&) {
    return out_of_memory(number);
  }
  if (!status.ok()) return end(job, std::move(status));
  HORO_FAILPOINT("operation.held");
  completed_.store(number, std::memory_order_release);
  passed_.store(number, std::memory_order_release);
  HORO_FAILPOINT("operation.completed");
  return status;
}

// The others may be in the operation that this rank cannot run. What it had posted is not withdrawn: the plane is not
// to be entered again.
Status Group::out_of_memory(uint64_t number) {
  left_after_.store(0, std::memory_order_seq_cst);
  Status why(Code::kUnavailable, text("a rank of group ", options_.id, " has no memory left"));
  give_up(why);
  return why.with_operation(number);
}

}  // namespace horo::group
