#include "horo/engine/executor.h"

namespace horo::engine {

namespace {

/// Up to here the hop to another thread costs more than running it.
constexpr uint64_t kSmall = 64 << 10;
/// The same for a thread that waits for a result, and could do nothing else meanwhile but messages. Not without limit:
/// it comes back for its deadline, and for Ctrl-C, when the batch has ended.
constexpr uint64_t kForWaiters = 8 << 20;

bool is_special(Kind kind) { return kind == Kind::kAddSet || kind == Kind::kRemoveSet; }

}  // namespace

Executor::Executor(group::Engine& engine, BufferPool& pool, std::shared_ptr<group::Group> group, Special special,
                   Ended ended, const Observation& observation)
    : engine_(engine),
      group_(group),
      carrier_(std::move(group)),
      scratch_(pool),
      observation_(observation),
      runner_(carrier_, scratch_, observation, engine.devices_handle()),
      special_(std::move(special)),
      ended_(std::move(ended)) {}

Executor::~Executor() {
  stop(Status(Code::kStopped, "the process set has ended"));
  thread_ = Thread();
  wait_idle(Deadline::never());
}

Status Executor::submit(Work work) {
  std::unique_lock lock(mutex_);
  if (over_) {
    lock.unlock();
    end(work, *over_);
    return {};
  }
  if (!thread_.joinable()) {
    Result<Thread> started = Thread::start("horo-run", [this](const std::stop_token& stop) { this->work(stop); });
    if (!started.ok()) {
      lock.unlock();
      end(work, started.status());
      return started.status();
    }
    thread_ = std::move(*started);
    if (Status stays = thread_.stay_on(engine_.core()); !stays.ok()) engine_.log().warning(stays);
  }
  waiting_.push_back(std::move(work));
  changed_.notify_one();
  return {};
}

bool Executor::run_here(Work& work, bool may_spin) {
  uint64_t bytes = 0;
  for (const UnitPtr& unit : work.units) {
    if (is_special(unit->kind())) return false;
    bytes += unit->bytes() * (unit->tensors.front().varies() ? static_cast<uint64_t>(carrier_.size()) : 1);
  }
  if (bytes > (may_spin ? kForWaiters : kSmall)) return false;
  {
    std::lock_guard lock(mutex_);
    if (busy_ || !waiting_.empty() || over_) return false;
    busy_ = true;
  }
  carrier_.set_may_spin(may_spin);
  run(work);
  carrier_.set_may_spin(false);
  std::lock_guard lock(mutex_);
  busy_ = false;
  // Nobody is woken for nothing: after a large batch there is a thread, and each small one would cost a change of
  // threads.
  if (!waiting_.empty()) changed_.notify_one();
  idle_.notify_all();
  return true;
}

void Executor::end(Work& work, const Status& why) const {
  observation_.failed(work.submissions, why);
  for (const Handle& submission : work.submissions) {
    if (submission) submission->finish(why);
  }
}

void Executor::run(Work& work) {
  if (work.units.empty()) {
    const Status met = runner_.meet();
    const Status& outcome = work.verdict.ok() ? met : work.verdict;
    if (!outcome.ok()) observation_.failed(work.submissions, outcome);
    for (const Handle& submission : work.submissions) {
      if (submission) submission->finish(outcome, work.answer);
    }
    if (work.ends) ended_(work.verdict);
    return;
  }
  observation_.begun(work);
  if (is_special(work.units.front()->kind())) {
    // When a member is lost, some may have heard of this batch and others not. Who makes a process set waits for the
    // others: so they meet first, which all of them do or none.
    if (const Status met = runner_.meet(); !met.ok()) return end(work, met);
    observation_.done(work, {});
    for (size_t i = 0; i < work.units.size(); ++i) special_(*work.units[i], work.submissions[i]);
    return;
  }
  carrier_.set_ways(work.ways);
  const std::vector<Status> outcomes = runner_.run(work);
  scratch_.give_back();
  finish(work, outcomes);
}

void Executor::finish(Work& work, const std::vector<Status>& outcomes) const {
  observation_.done(work, outcomes);
  for (size_t i = 0; i < outcomes.size(); ++i) {
    if (work.submissions[i]) work.submissions[i]->finish(outcomes[i]);
  }
}

// A thread that waits for a batch may drive the loop, and sleeps there: it is told by the bell.
void Executor::start(Work work) {
  const bool on_device = !work.units.empty() && work.units.front()->tensors.front().place == Place::kDevice;
  if (!on_device) {
    run(work);
    return engine_.bell().ring();
  }
  observation_.begun(work);
  carrier_.set_ways(work.ways);
  const auto kept = std::make_shared<Work>(std::move(work));
  const auto promised = [this, kept](const device::EventHandle& results) {
    for (const Handle& submission : kept->submissions) {
      if (submission) submission->promise(results);
    }
    engine_.bell().ring();
  };
  const auto landed = [this, kept](const Status& outcome) {
    finish(*kept, std::vector<Status>(kept->units.size(), outcome));
    engine_.bell().ring();
    std::lock_guard lock(mutex_);
    --flying_;
    idle_.notify_all();
  };
  {
    std::lock_guard lock(mutex_);
    ++flying_;
  }
  const std::optional<std::vector<Status>> outcomes = runner_.start(*kept, {promised, landed});
  scratch_.give_back();
  if (!outcomes) return;
  finish(*kept, *outcomes);
  engine_.bell().ring();
  std::lock_guard lock(mutex_);
  --flying_;
}

void Executor::work(const std::stop_token& stop) {
  std::stop_callback wake(stop, [this] {
    std::lock_guard lock(mutex_);
    changed_.notify_all();
  });
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop.stop_requested() || (!busy_ && !waiting_.empty()); });
    if (stop.stop_requested()) return;
    Work next = std::move(waiting_.front());
    waiting_.pop_front();
    busy_ = true;
    lock.unlock();
    start(std::move(next));
    lock.lock();
    busy_ = false;
    idle_.notify_all();
  }
}

bool Executor::wait_idle(Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto idle = [this] { return !busy_ && flying_ == 0; };
  if (!deadline.is_never()) return idle_.wait_until(lock, deadline.at(), idle);
  idle_.wait(lock, idle);
  return true;
}

void Executor::stop(const Status& why) {
  std::deque<Work> rest;
  {
    std::lock_guard lock(mutex_);
    if (!over_) over_ = why;
    rest.swap(waiting_);
  }
  for (Work& work : rest) end(work, why);
}

}  // namespace horo::engine
