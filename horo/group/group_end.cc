// How operations end that fail, and groups that are over.
#include <algorithm>
#include <set>

#include "horo/base/awake_limit.h"
#include "horo/base/text.h"
#include "horo/group/group.h"

namespace horo::group {

using rendezvous::Loss;

namespace {

constexpr auto kReasonLimit = std::chrono::milliseconds(500);
constexpr auto kKnownLossLimit = std::chrono::milliseconds(100);

}  // namespace

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
  AwakeLimit limit(options_.settle_limit, Clock::now());
  std::unique_lock lock(mutex_);
  while (true) {
    // Again if another rank was lost meanwhile: nobody would wake this thread for it.
    while (must_answer_.load(std::memory_order_seq_cst)) {
      lock.unlock();
      answer_revocation();
      limit = AwakeLimit(options_.settle_limit, Clock::now());
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
    if (limit.expired(Clock::now())) {
      return Status(Code::kTimeout,
                    text("the survivors of the group did not agree about operation ", job.number, " in time"))
          .with_operation(job.number);
    }
    changed_.wait_until(lock, limit.next_look());
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
  if (operation <= completed_.load(std::memory_order_acquire)) return;  // By another server, before.
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
