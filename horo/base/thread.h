// Threads of the library: named, deaf to signals, joined by their handle.
#pragma once

#include <pthread.h>

#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "horo/base/status.h"

namespace horo {

/// A running thread. The destructor asks it to stop and joins it, so its function must return soon after
/// token.stop_requested() (a std::stop_callback can wake what it waits on).
///
/// Signals of the embedding program are never delivered to it; only the faults a thread causes itself (SIGSEGV, SIGBUS,
/// SIGFPE, SIGILL, SIGTRAP, SIGSYS) are left unblocked, because blocking those ends the process without a trace.
class Thread {
 public:
  using Body = std::function<void(std::stop_token)>;

  /// `name` is what ps and debuggers show; the kernel keeps 15 characters of it. kUnavailable when the system refuses.
  static Result<Thread> start(const std::string& name, Body body);

  Thread() = default;
  Thread(Thread&& other) noexcept;
  Thread& operator=(Thread&& other) noexcept;
  ~Thread();

  bool joinable() const { return running_; }
  void request_stop() { stop_.request_stop(); }
  /// From now on it runs on this core alone; -1: wherever the system likes. kInvalidArgument for a core that is not
  /// there or not allowed.
  Status stay_on(int core);
  /// Waits for the end of the body. Must not be called by the thread itself.
  void join();

 private:
  pthread_t thread_{};
  bool running_ = false;
  std::stop_source stop_{std::nostopstate};
};

}  // namespace horo
