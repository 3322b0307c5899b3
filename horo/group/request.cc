#include "horo/group/request.h"

#include "horo/base/text.h"
#include "horo/transport/futex.h"

namespace horo::group {

namespace {

// The kernel takes up a wait without a limit again after a handler that was installed with SA_RESTART, and never tells
// the caller. So every wait has one.
constexpr auto kLongestNap = std::chrono::hours(1);

}  // namespace

Status Request::wait(Deadline deadline, OnSignal on_signal) { return wait_for(kEnded, deadline, on_signal); }

Status Request::wait_promised(Deadline deadline, OnSignal on_signal) {
  return wait_for(kPromised, deadline, on_signal);
}

device::EventHandle Request::promised() const {
  return stage_.load(std::memory_order_acquire) == kUnderWay ? nullptr : promised_;
}

Status Request::wait_for(Stage stage, Deadline deadline, OnSignal on_signal) {
  uint32_t now = stage_.load(std::memory_order_acquire);
  for (; now < stage; now = stage_.load(std::memory_order_acquire)) {
    if (deadline.expired()) return {Code::kTimeout, "the operation is still under way"};
    const transport::FutexWait nap{&stage_, now};
    // Sequentially consistent with enter(): either it sees the sleeper, or the sleeper sees the change.
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    const auto woken = stage_.load(std::memory_order_seq_cst) != now
                           ? transport::Woken::kWoken
                           : transport::wait_any({&nap, 1}, deadline.earlier(Deadline::after(kLongestNap)));
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
    const bool waits = stage_.load(std::memory_order_acquire) < stage;
    if (woken == transport::Woken::kInterrupted && on_signal == OnSignal::kReturn && waits) {
      return {Code::kInterrupted, text("a signal arrived while waiting for ", transport::name(operation_.kind),
                                       "; the operation goes on, wait for its request again")};
    }
  }
  return now == kEnded ? *status_ : Status();
}

void Request::enter(Stage stage) {
  stage_.store(stage, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) transport::wake_all(stage_);
}

void Request::promise(const device::EventHandle& result) {
  promised_ = result;
  enter(kPromised);
}

void Request::finish(const Status& status) {
  if (callback_) callback_(status);
  status_ = status;
  enter(kEnded);
}

}  // namespace horo::group
