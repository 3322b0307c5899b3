#include "horo/ddp/pipeline.h"

#include <algorithm>

#include "horo/kernel/reduce.h"
#include "horo/transport/futex.h"

namespace horo::ddp {

namespace {

// The kernel takes up a wait without a limit again after a signal handler, and never tells the caller.
constexpr auto kLongestNap = std::chrono::hours(1);

}  // namespace

Pipeline::Pipeline(group::Group& group) : group_(group), state_(std::make_shared<State>()) {}

Pipeline::~Pipeline() {
  if (idle()) return;
  group_.give_up(Status(Code::kStopped, "a reducer was destroyed while its gradients were under way"));
  while (!wait_idle(Deadline::never()).ended) continue;
}

uint64_t Pipeline::submit(Exchange* exchange) {
  uint64_t number = 0;
  {
    std::lock_guard lock(state_->mutex);
    number = ++state_->submitted;
    if (state_->failure) return number;
    state_->queue.push_back(exchange);
    if (state_->running) return number;
    state_->running = true;
  }
  run(state_, group_);
  return number;
}

// By whoever set `running`, or by the callback that it was handed to.
void Pipeline::run(const std::shared_ptr<State>& state, group::Group& group) {
  const kernel::DefaultFloatMode float_mode;
  while (true) {
    Exchange* exchange = nullptr;
    {
      std::lock_guard lock(state->mutex);
      exchange = state->queue.front();
    }
    auto handed_over = take_step(state, group, *exchange);
    if (!handed_over.ok()) return fail(*state, handed_over.status());
    if (*handed_over || !end_of_exchange(*state)) return;
  }
}

/// False when the exchange has no step left. After true another thread may be in here already.
Result<bool> Pipeline::take_step(const std::shared_ptr<State>& state, group::Group& group, Exchange& exchange) {
  HORO_ASSIGN(std::optional<Exchange::Step> step, exchange.next());
  if (!step) return false;
  state->sent_bytes.fetch_add(step->sent_bytes, std::memory_order_relaxed);
  auto callback = [state, &group](const Status& status) {
    if (status.ok()) {
      run(state, group);
    } else {
      fail(*state, status);
    }
  };
  HORO_TRY(
      group.submit(std::move(step->operation), step->in, step->out, Deadline::never(), std::move(callback)).status());
  return true;
}

/// True when there is another one.
bool Pipeline::end_of_exchange(State& state) {
  std::lock_guard lock(state.mutex);
  state.queue.pop_front();
  ++state.done;
  state.last_end = Clock::now();
  state.running = !state.queue.empty();
  changed(state);
  return state.running;
}

void Pipeline::fail(State& state, const Status& why) {
  std::lock_guard lock(state.mutex);
  state.queue.clear();
  state.failure = why;
  state.running = false;
  changed(state);
}

void Pipeline::changed(State& state) {
  state.changes.fetch_add(1, std::memory_order_seq_cst);
  transport::wake_all(state.changes);
}

template <class Condition>
Waited Pipeline::wait_until(Condition condition, Deadline deadline) {
  while (true) {
    const uint32_t seen = state_->changes.load(std::memory_order_seq_cst);
    {
      std::lock_guard lock(state_->mutex);
      if (std::optional<Status> outcome = condition(*state_)) return {true, *outcome};
    }
    if (deadline.expired()) return {false, Status(Code::kTimeout, "the gradients are still under way")};
    const transport::FutexWait nap{&state_->changes, seen};
    const auto woken = transport::wait_any({&nap, 1}, deadline.earlier(Deadline::after(kLongestNap)));
    if (woken == transport::Woken::kInterrupted) {
      return {false,
              Status(Code::kInterrupted, "a signal arrived while gradients are under way; they go on, wait again")};
    }
  }
}

Waited Pipeline::wait(uint64_t number, Deadline deadline) {
  const auto condition = [number](const State& state) -> std::optional<Status> {
    if (state.done >= number) return Status();
    return state.failure;
  };
  return wait_until(condition, deadline);
}

Waited Pipeline::wait_idle(Deadline deadline) {
  return wait_until([](const State& state) { return state.running ? std::nullopt : std::optional<Status>(Status()); },
                    deadline);
}

bool Pipeline::idle() const {
  std::lock_guard lock(state_->mutex);
  return !state_->running;
}

void Pipeline::reset() {
  std::lock_guard lock(state_->mutex);
  HORO_CHECK(!state_->running, "a pipeline is reset while it runs");
  state_->failure.reset();
  state_->done = state_->submitted;
}

Time Pipeline::last_end() const {
  std::lock_guard lock(state_->mutex);
  return state_->last_end;
}

}  // namespace horo::ddp
