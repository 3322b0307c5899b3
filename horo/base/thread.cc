#include "horo/base/thread.h"

#include <sched.h>
#include <signal.h>

#include <cstring>
#include <utility>

#include "horo/base/text.h"

namespace horo {

namespace {

struct Start {
  std::string name;
  Thread::Body body;
  std::stop_token token;
};

extern "C" void* run_horo_thread(void* argument) {
  std::unique_ptr<Start> start(static_cast<Start*>(argument));
  pthread_setname_np(pthread_self(), start->name.substr(0, 15).c_str());
  start->body(start->token);
  return nullptr;
}

sigset_t deaf() {
  sigset_t signals;
  sigfillset(&signals);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigdelset(&signals, fault);
  return signals;
}

}  // namespace

Result<Thread> Thread::start(const std::string& name, Body body) {
  Thread thread;
  thread.stop_ = std::stop_source();
  auto start = std::make_unique<Start>(Start{name, std::move(body), thread.stop_.get_token()});

  // Blocked before the thread exists and inherited by it: there is no instant at which it could take a signal.
  sigset_t blocked = deaf();
  sigset_t before;
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  int error = pthread_create(&thread.thread_, nullptr, run_horo_thread, start.get());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) {
    return Status(Code::kUnavailable, text("the thread '", name, "' could not be started: ", std::strerror(error),
                                           "; check the limits on processes and memory"));
  }
  (void)start.release();  // Owned by the thread now.
  thread.running_ = true;
  return thread;
}

Thread::Thread(Thread&& other) noexcept
    : thread_(other.thread_), running_(std::exchange(other.running_, false)), stop_(std::move(other.stop_)) {}

Thread& Thread::operator=(Thread&& other) noexcept {
  if (this == &other) return *this;
  request_stop();
  join();
  thread_ = other.thread_;
  running_ = std::exchange(other.running_, false);
  stop_ = std::move(other.stop_);
  return *this;
}

Thread::~Thread() {
  request_stop();
  join();
}

Status Thread::stay_on(int core) {
  if (core < 0 || !running_) return {};
  cpu_set_t only;
  CPU_ZERO(&only);
  if (core < CPU_SETSIZE) CPU_SET(core, &only);
  const int error = pthread_setaffinity_np(thread_, sizeof only, &only);
  if (error == 0) return {};
  return {Code::kInvalidArgument, text("a thread cannot be put on core ", core, ": ", std::strerror(error),
                                       "; it is not there, or not allowed by the cgroup")};
}

void Thread::join() {
  if (!running_) return;
  HORO_CHECK(!pthread_equal(pthread_self(), thread_), "a thread cannot join itself");
  pthread_join(thread_, nullptr);
  running_ = false;
}

}  // namespace horo
