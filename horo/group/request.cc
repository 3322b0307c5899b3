#include "horo/group/request.h"

namespace horo::group {

Status Request::wait(Deadline deadline) {
  std::unique_lock lock(mutex_);
  auto done = [this] { return status_.has_value(); };
  if (deadline.is_never()) {
    changed_.wait(lock, done);
  } else if (!changed_.wait_until(lock, deadline.at(), done)) {
    return {Code::kTimeout, "the operation is still under way"};
  }
  return *status_;
}

void Request::finish(const Status& status) {
  if (callback_) callback_(status);
  std::lock_guard lock(mutex_);
  status_ = status;
  changed_.notify_all();
}

}  // namespace horo::group
