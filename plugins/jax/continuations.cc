#include "plugins/jax/continuations.h"

#include <utility>

namespace horo::jax {

Continuations& Continuations::shared() {
  static Continuations* const kOnly = new Continuations;
  return *kOnly;
}

void Continuations::run(std::function<void()> task) {
  std::unique_lock lock(mutex_);
  if (idle_ <= tasks_.size()) {
    Result<Thread> thread = Thread::start("horo-jax", [this](const std::stop_token& token) { work(token); });
    if (!thread.ok() && threads_.empty()) {
      lock.unlock();
      task();
      return;
    }
    if (thread.ok()) threads_.push_back(std::move(*thread));
  }
  tasks_.push_back(std::move(task));
  lock.unlock();
  came_.notify_one();
}

void Continuations::work(const std::stop_token& token) {
  std::unique_lock lock(mutex_);
  while (!token.stop_requested()) {
    ++idle_;
    came_.wait(lock, token, [this] { return !tasks_.empty(); });
    --idle_;
    if (tasks_.empty()) return;
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

}  // namespace horo::jax
