#include "horo/group/group.h"

#include <algorithm>
#include <new>
#include <set>

#include "horo/base/check.h"
#include "horo/base/failpoint.h"
#include "horo/base/text.h"

namespace horo::group {

using rendezvous::Loss;

namespace {

constexpr auto kReasonLimit = std::chrono::milliseconds(500);
constexpr auto kKnownLossLimit = std::chrono::milliseconds(100);

std::unique_ptr<DeviceOperations> device_operations(const GroupOptions& options, DeviceHost& host, Plane& plane) {
  if (options.devices == nullptr) return nullptr;
  DeviceTerms terms{options.device_path, options.share_devices, options.device_hold, options.shape,
                    options.ranks,       options.member,        options.settle_limit};
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
    return out_of_memory();
  }
}

std::optional<Status> Group::execute_on_device(const collective::Operation& operation, const std::byte* in,
                                               std::byte* out, Deadline deadline, const device::Sequel& sequel,
                                               Callback landed) {
  try {
    return on_devices_->start(operation, in, out, steps_on_host(deadline), deadline, false, sequel, std::move(landed));
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
}

// An operation on a device is made of several on the host, each with a number of its own.
DeviceOperations::OnHost Group::steps_on_host(Deadline deadline) {
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
    return out_of_memory();
  }
  if (!status.ok()) return end(job, std::move(status));
  HORO_FAILPOINT("operation.held");
  completed_.store(number, std::memory_order_release);
  passed_.store(number, std::memory_order_release);
  HORO_FAILPOINT("operation.completed");
  return status;
}

// The others may be in the operation that this rank cannot run.
Status Group::out_of_memory() {
  Status why(Code::kUnavailable, text("a rank of group ", options_.id, " has no memory left"));
  give_up(why);
  return why;
}

Status Group::end(const Job& job, Status status) {
  switch (status.code()) {
    case Code::kMismatch:
    case Code::kUnavailable:
    case Code::kInvalidArgument:
      passed_.store(job.number, std::memory_order_release);
      return status;  // Equal on all members; the group goes on.
    case Code::kTimeout:
    case Code::kCorrupt:
      give_up(status);
      return status;
    default:
      break;
  }
  log_.debug("group ", options_.id, ", operation ", job.number, " ended: ", status);
  note_over();
  if (!plane_->decides_alone()) return settle(job, status);
  await_reason();
  return failure(job, status);
}

// The page of a group tells that it is over before the control thread knows why: a member gave it up, was killed, was
// frozen. The reason is on its way; where the lost member is known already it is waited for only briefly.
void Group::await_reason() {
  const auto limit = plane_->gone().empty() ? kReasonLimit : kKnownLossLimit;
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, limit, [this] { return over_ || left_ || revoked_epoch_ > 0 || host_.fenced(); });
}

// Waits until the survivors have decided about this operation. The control thread drives the decision; this thread
// reports that it has left the operation whenever it is asked to.
Status Group::settle(const Job& job, const Status& cause) {
  const Deadline limit = Deadline::after(options_.settle_limit);
  std::unique_lock lock(mutex_);
  while (true) {
    // Again if another rank was lost meanwhile: nobody would wake this thread for it.
    while (must_answer_.load(std::memory_order_seq_cst)) {
      lock.unlock();
      answer_revocation();
      lock.lock();
    }
    if (over_ || host_.fenced() || job.number > left_after_.load(std::memory_order_relaxed)) break;
    if (decision_ && decision_->final < job.number) break;
    if (decision_ && plane_->held() >= job.number) {
      lock.unlock();
      HORO_TRY(plane_->accept(job, {}));
      completed_.store(job.number, std::memory_order_release);
      passed_.store(job.number, std::memory_order_release);
      return {};
    }
    if (auto found = served_.find(job.number); decision_ && found != served_.end()) {
      std::vector<std::byte> result = std::move(found->second);
      served_.erase(found);
      lock.unlock();
      HORO_TRY(plane_->accept(job, result));
      completed_.store(job.number, std::memory_order_release);
      passed_.store(job.number, std::memory_order_release);
      return {};
    }
    if (changed_.wait_until(lock, limit.at()) == std::cv_status::timeout) {
      return Status(Code::kTimeout,
                    text("the survivors of the group did not agree about operation ", job.number, " in time"))
          .with_operation(job.number);
    }
  }
  lock.unlock();
  return failure(job, cause);
}

Status Group::failure(const Job& job, const Status& cause) const {
  const auto finish = [&](const Status& status) {
    const Status numbered = status.with_operation(job.number);
    return cause.contents_intact() ? numbered : numbered.with_contents_lost();
  };
  if (const auto why = reason(text("operation ", job.number, " (", transport::name(job.operation.kind), ")"))) {
    return finish(*why);
  }
  std::lock_guard lock(mutex_);
  return finish(left_.value_or(cause));
}

std::optional<Status> Group::reason(std::string_view what) const {
  if (auto why = host_.fenced()) return Status(Code::kEvicted, *why);
  {
    std::lock_guard lock(mutex_);
    if (over_) return over_;
  }
  const std::vector<int> names = this->names();
  std::set<int> lost;
  for (int member : plane_->gone()) lost.insert(names[static_cast<size_t>(member)]);
  std::string reasons;
  for (const Loss& loss : host_.losses()) {
    const auto member = std::find(options_.ranks.begin(), options_.ranks.end(), loss.rank);
    if (member == options_.ranks.end()) continue;
    const int name = names[static_cast<size_t>(member - options_.ranks.begin())];
    lost.insert(name);
    reasons += text(reasons.empty() ? " (" : "; ", "rank ", name, ": ", rendezvous::name(loss.reason));
  }
  if (!reasons.empty()) reasons += ")";
  if (lost.erase(names[static_cast<size_t>(options_.member)]) > 0) {
    return Status(Code::kEvicted, text("the other ranks went on without this one; ", what, " has no result here"));
  }
  if (lost.empty()) return std::nullopt;
  const std::vector<int> ranks(lost.begin(), lost.end());
  return Status(Code::kPeerLost, text(what, " failed: ", ranks_text(ranks), ranks.size() == 1 ? " is" : " are", " gone",
                                      reasons, "; go on in a group of the survivors, or restart the job"))
      .with_lost(ranks);
}

Status Group::why_over(std::string_view what) {
  await_reason();
  if (const auto why = reason(what)) return *why;
  std::lock_guard lock(mutex_);
  return left_.value_or(Status(Code::kStopped, "the group was revoked"));
}

std::optional<Status> Group::over() const {
  if (!is_over_.load(std::memory_order_acquire)) return std::nullopt;
  if (auto why = reason(text("group ", options_.id))) return why;
  std::lock_guard lock(mutex_);
  if (left_) return left_;
  if (Clock::now() < over_since_ + kReasonLimit) return std::nullopt;
  return Status(Code::kStopped, "the group was revoked");
}

Deadline Group::ask_again() const {
  if (!is_over_.load(std::memory_order_acquire) || over()) return Deadline::never();
  std::lock_guard lock(mutex_);
  return Deadline(over_since_ + kReasonLimit);
}

void Group::note_over() {
  {
    std::lock_guard lock(mutex_);
    if (!is_over_.load(std::memory_order_relaxed)) over_since_ = Clock::now();
    is_over_.store(true, std::memory_order_release);
  }
  host_.over_changed();
}

void Group::give_up(const Status& why) {
  host_.abandon(options_.id, why);
  abandoned(why);
}

void Group::note_waiting(int member, Time since) {
  if (watcher_ != nullptr) watcher_->waiting_for(member, since);
}

void Group::note_waiting(Time since) {
  for (int other = 0; other < size(); ++other) {
    if (other != options_.member) note_waiting(other, since);
  }
}

void Group::wait_over(Duration span) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, span, [this] { return is_over_.load(std::memory_order_acquire); });
}

void Group::member_left(int rank, uint64_t passed) {
  {
    std::lock_guard lock(mutex_);
    left_after_.store(std::min(passed, left_after_.load(std::memory_order_relaxed)), std::memory_order_seq_cst);
    changed_.notify_all();
    const auto member = std::find(options_.ranks.begin(), options_.ranks.end(), rank);
    const int name =
        member == options_.ranks.end() ? rank : names_[static_cast<size_t>(member - options_.ranks.begin())];
    if (!left_) left_ = Status(Code::kStopped, text("rank ", name, " has ended the group")).with_lost({name});
  }
  if (number_.load(std::memory_order_seq_cst) > passed) plane_->revoke({});
  note_over();
}

void Group::answer_revocation() {
  uint64_t epoch = 0;
  {
    std::lock_guard lock(mutex_);
    if (!must_answer_.exchange(false, std::memory_order_seq_cst)) return;
    epoch = revoked_epoch_;
  }
  host_.report(epoch, progress());
}

rendezvous::Report Group::progress() const {
  const uint64_t completed = completed_.load(std::memory_order_acquire);
  return {options_.id, completed, std::max(completed, plane_->held())};
}

std::vector<int> Group::gone_of(const rendezvous::LostSet& lost) const {
  std::vector<int> gone;
  for (size_t member = 0; member < options_.ranks.size(); ++member) {
    if (lost.contains(options_.ranks[member])) gone.push_back(static_cast<int>(member));
  }
  return gone;
}

void Group::revoke(const rendezvous::output::Revoke& revoke) {
  plane_->revoke(gone_of(revoke.lost));
  {
    std::lock_guard lock(mutex_);
    revoked_epoch_ = revoke.epoch;
    decision_.reset();  // Whoever reports to this round waits for its decision: the last one may not hold any more.
    must_answer_.store(true, std::memory_order_seq_cst);
    changed_.notify_all();
  }
  if (!token_.load(std::memory_order_seq_cst)) answer_revocation();
  note_over();
}

void Group::decide(const rendezvous::output::Decide& decision) {
  bool revoked = false;
  {
    std::lock_guard lock(mutex_);
    revoked = revoked_epoch_ > 0;
    decision_ = decision;
    settle_when_complete();
    changed_.notify_all();
  }
  if (revoked) return note_over();
  // The loss came before the group did. Members that wait for one that has found out must be woken.
  plane_->revoke(gone_of(decision.lost));
  note_over();
}

void Group::accept_served(uint64_t operation, std::vector<std::byte> result) {
  std::lock_guard lock(mutex_);
  served_[operation] = std::move(result);
  settle_when_complete();
  changed_.notify_all();
}

// Under the lock.
void Group::settle_when_complete() {
  if (!decision_) return;
  const uint64_t served = served_.empty() ? 0 : served_.rbegin()->first;
  if (std::max({plane_->held(), completed_.load(std::memory_order_acquire), served}) < decision_->final) return;
  host_.settled(decision_->epoch, options_.id);
}

void Group::abandoned(const Status& why) {
  {
    std::lock_guard lock(mutex_);
    if (!over_) over_ = why;
    changed_.notify_all();
  }
  plane_->revoke({});
  note_over();
}

}  // namespace horo::group
