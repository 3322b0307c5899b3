// Threads on which XLA goes on.
//
// Whoever completes a future of XLA runs what waited for it, which may be all the rest of a program. On a thread of the
// library that would keep it from answering other ranks, so completions are handed to threads of their own. There are
// as many as have ever been at work at the same time: a program that goes on may wait for another one.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "horo/base/thread.h"

namespace horo::jax {

class Continuations {
 public:
  /// The process's own; never destroyed, since programs may still run while the process exits.
  static Continuations& shared();

  /// Runs `task` soon, on another thread; on this one where the system refuses a thread.
  void run(std::function<void()> task);

 private:
  void work(const std::stop_token& token);

  std::mutex mutex_;
  std::condition_variable_any came_;
  std::deque<std::function<void()>> tasks_;
  size_t idle_ = 0;
  std::vector<Thread> threads_;
};

}  // namespace horo::jax
