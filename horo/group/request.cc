#include "horo/group/request.h"

#include "horo/base/text.h"
#include "horo/transport/futex.h"

namespace horo::group {

namespace {

// The kernel takes up a wait without a limit again after a handler that was installed with SA_RESTART, and never tells
// the caller. So every wait has one.
constexpr auto kLongestNap = std::chrono::hours(1);

}  // namespace

Status Request::wait(Deadline deadline, OnSignal on_signal) {
  while (!done()) {
    if (deadline.expired()) return {Code::kTimeout, "the operation is still under way"};
    const transport::FutexWait nap{&ended_, 0};
    // Sequentially consistent with finish(): either it sees the sleeper, or the sleeper sees the end.
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    const auto woken = ended_.load(std::memory_order_seq_cst) != 0
                           ? transport::Woken::kWoken
                           : transport::wait_any({&nap, 1}, deadline.earlier(Deadline::after(kLongestNap)));
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
    if (woken == transport::Woken::kInterrupted && on_signal == OnSignal::kReturn && !done()) {
      return {Code::kInterrupted, text("a signal arrived while waiting for ", transport::name(operation_.kind),
                                       "; the operation goes on, wait for its request again")};
    }
  }
  return *status_;
}

void Request::finish(const Status& status) {
  if (callback_) callback_(status);
  status_ = status;
  ended_.store(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) transport::wake_all(ended_);
}

}  // namespace horo::group
