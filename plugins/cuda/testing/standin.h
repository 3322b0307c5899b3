// What the stand-ins of the driver and of NCCL share. They exist for tests on machines without a GPU: memory is the
// host's, a stream counts what NCCL has been given and has done, and nothing they show says anything about a GPU.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <utility>

#define HORO_STANDIN __attribute__((visibility("default")))

namespace horo::cuda::standin {

class Stream {
 public:
  void begin() {
    std::lock_guard lock(mutex_);
    ++given_;
  }
  void end() {
    std::lock_guard lock(mutex_);
    ++done_;
    for (; !later_.empty() && later_.front().first <= done_; later_.pop_front()) later_.front().second();
  }
  /// When all that was given has been done.
  void put(std::function<void()> what) {
    std::lock_guard lock(mutex_);
    if (done_ >= given_) return what();
    later_.emplace_back(given_, std::move(what));
  }
  uint64_t given() {
    std::lock_guard lock(mutex_);
    return given_;
  }
  bool has_done(uint64_t number) {
    std::lock_guard lock(mutex_);
    return done_ >= number;
  }

 private:
  std::mutex mutex_;
  uint64_t given_ = 0, done_ = 0;
  std::deque<std::pair<uint64_t, std::function<void()>>> later_;
};

}  // namespace horo::cuda::standin
