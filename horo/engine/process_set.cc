#include "horo/engine/process_set.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "horo/base/text.h"

namespace horo::engine {

namespace {

constexpr auto kPatience = std::chrono::milliseconds(100);  ///< Before a neighbour is probed, and between the probes.
constexpr auto kFirstLook = std::chrono::microseconds(100);
constexpr auto kLongestLook = std::chrono::milliseconds(1);

}  // namespace

ProcessSet::ProcessSet(group::Engine& engine, BufferPool& pool, std::shared_ptr<group::Group> group,
                       const NegotiationOptions& options, Executor::Special special, const Observation& observation)
    : engine_(engine),
      group_(std::move(group)),
      observation_(observation),
      negotiation_(Tree::of(group_->shape(), group_->member()), options),
      tuning_{.threshold = options.coordinator.fusion.threshold, .window = options.coordinator.window, .ways = {}},
      executor_(
          engine, pool, group_, std::move(special), [this](const Status& why) { close(why); }, observation) {}

Result<std::shared_ptr<ProcessSet>> ProcessSet::open(group::Engine& engine, BufferPool& pool,
                                                     std::shared_ptr<group::Group> group,
                                                     const NegotiationOptions& options, Executor::Special special,
                                                     const Observation& observation, Deadline deadline) {
  NegotiationOptions mine = options;
  mine.coordinator.ranks = group->names();
  std::shared_ptr<ProcessSet> set(
      new ProcessSet(engine, pool, std::move(group), mine, std::move(special), observation));
  HORO_ASSIGN(set->post_, group::Post::open(engine, set->group_, deadline));
  return set;
}

// What was possible the last time is possible now.
Result<UnitPtr> ProcessSet::describe(const std::vector<Call>& calls) const {
  UnitPtr unit = calls.size() == 1 ? queue_.known(calls.front().tensor) : nullptr;
  if (unit) return unit;
  unit = unit_of(calls);
  HORO_TRY(validate(*unit, size()));
  return unit;
}

Status ProcessSet::check_device(const std::vector<Call>& calls) {
  for (const Call& call : calls) {
    if (!call.where.on_device()) continue;
    int used = -1;
    if (device_.compare_exchange_strong(used, call.where.device) || used == call.where.device) continue;
    return {Code::kInvalidArgument,
            text("tensor '", call.tensor.name, "' is on device ", call.where.device, ", but rank ", engine_.rank(),
                 " uses device ", used, " in this process set; a rank has one device in a set")};
  }
  return {};
}

Result<size_t> ProcessSet::submit(const Handle& submission) {
  HORO_ASSIGN(const size_t waiting, queue_.push(submission));
  observation_.handed_in(*submission);
  return waiting;
}

Status ProcessSet::join(const Handle& joining) {
  std::lock_guard lock(mutex_);
  if (joining_) return {Code::kInvalidArgument, "this rank has joined already and waits for the others"};
  HORO_TRY(queue_.open());
  joining_ = joining;
  join_asked_ = true;
  return {};
}

void ProcessSet::drive(Time now, bool here, bool may_spin) {
  if (over_) return;
  // Asked first: what a rank said before it left still counts.
  const std::optional<Status> why = group_->over();
  if (renamed_.load(std::memory_order_relaxed) && renamed_.exchange(false)) negotiation_.call_members(names());
  negotiation_.note_ready(observation_.traced());
  post_->pump();
  while (std::optional<group::Letter> letter = post_->receive()) {
    observation_.message_received();
    if (Status status = negotiation_.receive(letter->from, letter->bytes, now); !status.ok()) {
      group_->give_up(status);
    }
  }
  tell_ready(now);
  const bool joins = join_asked_.load(std::memory_order_relaxed) && join_asked_.exchange(false);
  if (joins || !lets_come(now)) announce_new(now);
  if (joins) negotiation_.join();
  negotiation_.set_waiting(waiters_.load(std::memory_order_relaxed) > 0);
  std::vector<Output> outputs = negotiation_.step(now);
  const auto is_batch = [](const Output& output) { return std::holds_alternative<output::Run>(output); };
  if (std::any_of(outputs.begin(), outputs.end(), is_batch)) observation_.cycle();
  for (Output& output : outputs) act(output, now, here, may_spin);
  if (why) return close(given_up_.value_or(*why));
  note_waiting(now);
}

// A program that hands in one tensor after the other is let: together they are announced in one message, alone in one
// each. As long as more come this thread only looks, less and less often, for it may have its core from the one that
// hands in. Not when a thread waits, nor when there is enough for an operation of its own; and not for long, for peers
// may wait.
bool ProcessSet::lets_come(Time now) {
  const Queue::Waiting waiting = queue_.waiting();
  if (waiting.units == 0 || waiters_.load(std::memory_order_relaxed) > 0 || waiting.bytes >= kEnough) return false;
  if (!coming_) coming_ = Coming{.since = now, .look_at = now + kFirstLook, .units = waiting.units};
  if (now < coming_->look_at) return true;
  if (waiting.units == coming_->units || now >= coming_->since + kLongestLook) return false;
  coming_->units = waiting.units;
  coming_->look_at = std::min(now + (now - coming_->since), coming_->since + kLongestLook);
  return true;
}

void ProcessSet::announce_new(Time now) {
  coming_.reset();
  for (const Handle& submission : queue_.take_new()) {
    observation_.taken_up(*submission);
    negotiation_.announce(submission->shared_unit(), now);
  }
  const Negotiation::Counters all = negotiation_.counters();
  observation_.announced(all.known - counted_.known, all.in_full - counted_.in_full);
  counted_ = all;
}

// What the ranks below have handed in: for the timeline only.
void ProcessSet::tell_ready(Time now) {
  for (Negotiation::Ready& ready : negotiation_.take_ready()) {
    for (int& member : ready.members) member = names()[static_cast<size_t>(member)];
    observation_.ready(ready.key, std::move(ready.members), now);
  }
}

void ProcessSet::run_batch(output::Run& batch, Time now, bool here, bool may_spin) {
  Work work;
  work.number = ++batches_;
  work.submissions = queue_.take(batch.units);
  work.units = std::move(batch.units);
  work.ways = ways_;
  observation_.agreed(work, now);
  run(std::move(work), here, may_spin);
}

void ProcessSet::act(Output& output, Time now, bool here, bool may_spin) {
  if (auto* send = std::get_if<output::Send>(&output)) {
    observation_.message_sent();
    if (Status status = post_->send(send->to, send->message); !status.ok()) group_->give_up(status);
  } else if (auto* batch = std::get_if<output::Run>(&output)) {
    run_batch(*batch, now, here, may_spin);
  } else if (auto* fail = std::get_if<output::Fail>(&output)) {
    Work work;
    work.submissions = {queue_.take(fail->key)};
    work.verdict = Status(Code::kMismatch, fail->message);
    run(std::move(work), here, may_spin);
  } else if (auto* tune = std::get_if<output::Tune>(&output)) {
    ways_ = tune->tuning.ways;
    std::lock_guard lock(mutex_);
    tuning_ = tune->tuning;
  } else if (auto* tuned = std::get_if<output::Tuned>(&output)) {
    note_tuned(*tuned);
  } else if (auto* joined = std::get_if<output::Joined>(&output)) {
    std::unique_lock lock(mutex_);
    Handle joining = std::exchange(joining_, nullptr);
    lock.unlock();
    Work work;
    work.submissions = {std::move(joining)};
    work.answer = names()[static_cast<size_t>(joined->last)];
    run(std::move(work), here, may_spin);
  } else if (auto* stall = std::get_if<output::Stall>(&output)) {
    observation_.stalled();
    engine_.log().warning(stall_text(*stall, names()));
  } else if (auto* abort = std::get_if<output::Abort>(&output)) {
    give_up(Status(Code::kTimeout, abort->message), here, may_spin);
  }
}

// The word reaches a member before any that has heard it leaves. Until then a loss is no news: whoever is lost may have
// left because of the word.
void ProcessSet::give_up(const Status& why, bool here, bool may_spin) {
  given_up_ = why;
  Work work;
  work.verdict = why;
  work.ends = true;
  run(std::move(work), here, may_spin);
}

// As long as a message is on its way in part, this thread must come back to send the rest: without it others do not
// come to the operation.
void ProcessSet::run(Work work, bool here, bool may_spin) {
  if (here && post_->queued() == 0 && executor_.run_here(work, may_spin)) return;
  if (Status status = executor_.submit(std::move(work)); !status.ok()) group_->give_up(status);
}

// Silence of a neighbour that owes us a word may mean that it is frozen: the control thread asks it.
void ProcessSet::note_waiting(Time now) {
  const bool joins = negotiation_.joined();
  const bool unanswered = joins || queue_.size() > 0;
  if (!unanswered && negotiation_.incomplete() == 0) {
    waiting_since_.reset();
    return;
  }
  if (!waiting_since_) waiting_since_ = noted_ = now;
  if (now - noted_ < kPatience) return;
  noted_ = now;
  const std::set<int> awaited = negotiation_.awaited(unanswered);
  for (int member : awaited) group_->note_waiting(member, *waiting_since_);
}

Deadline ProcessSet::next(Time now) const {
  if (over_) return Deadline::never();
  Deadline next = negotiation_.next();
  if (waiting_since_) next = next.earlier(Deadline(std::max(noted_ + kPatience, now)));
  if (coming_) next = next.earlier(Deadline(coming_->look_at));
  next = next.earlier(group_->ask_again());
  return next;
}

void ProcessSet::close(const Status& why) {
  if (!over_.exchange(true)) observation_.ended(why);
  // First: a batch whose submissions are not in the queue any more would be run as if this rank had joined.
  executor_.stop(why);
  const std::vector<Handle> rest = queue_.close(why);
  observation_.failed(rest, why);
  for (const Handle& submission : rest) submission->finish(why);
  std::unique_lock lock(mutex_);
  Handle joining = std::exchange(joining_, nullptr);
  lock.unlock();
  if (joining) joining->finish(why);
}

void ProcessSet::end(const Status& why) {
  close(why);
  group_->stop(why);
  // An operation that has not left the group's memory yet would write into what is given back.
  executor_.wait_idle(Deadline::never());
  engine_.remove_group(group_);
}

void ProcessSet::note_tuned(const output::Tuned& tuned) {
  if (tuning_log_) {
    if (Status status = tuning_log_->write(tuned.measured); !status.ok()) {
      engine_.log().warning("autotune: ", status, "; its log ends here");
      tuning_log_.reset();
    }
  }
  if (!tuned.gain) return;
  tuning_log_.reset();
  engine_.log().info("autotune: done, ", tuning_text(tuned.measured.back().tuning), ", ", *tuned.gain,
                     " times as fast as at the beginning");
}

Tuning ProcessSet::tuning() const {
  std::lock_guard lock(mutex_);
  return tuning_;
}

}  // namespace horo::engine
