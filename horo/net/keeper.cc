#include "horo/net/keeper.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <new>

#include "horo/base/build.h"
#include "horo/net/system_error.h"

namespace horo::net {

namespace {

constexpr size_t kStackBytes = 64 << 10;

struct Watched {
  int pipe;     ///< Ends when no process has the other end any more.
  int process;  ///< pidfd of the rank, for when a child of the rank has it.
};

// The child has the thread pointer of the thread that made it, so it must not write errno, nor enter instrumented code.
#define HORO_BARE __attribute__((no_sanitize("address", "thread", "undefined")))

__attribute__((always_inline)) HORO_BARE inline long bare_call(long number, long a, long b, long c, long d) {
#if defined(__x86_64__)
  long result = number;
  register long fourth asm("r10") = d;
  asm volatile("syscall" : "+a"(result) : "D"(a), "S"(b), "d"(c), "r"(fourth) : "rcx", "r11", "memory");
  return result;
#elif defined(__aarch64__)
  register long what asm("x8") = number;
  register long first asm("x0") = a;
  register long second asm("x1") = b;
  register long third asm("x2") = c;
  register long fourth asm("x3") = d;
  asm volatile("svc 0" : "+r"(first) : "r"(what), "r"(second), "r"(third), "r"(fourth) : "memory");
  return first;
#else
  (void)number, (void)a, (void)b, (void)c, (void)d;
  return -ENOSYS;
#endif
}

HORO_BARE int keep(void* argument) {
  const Watched watched = *static_cast<const Watched*>(argument);
  const int low = watched.pipe < watched.process ? watched.pipe : watched.process;
  const int high = watched.pipe < watched.process ? watched.process : watched.pipe;
  // Connections that the child had would stay open after the rank's death.
  if (low > 0 && bare_call(SYS_close_range, 0, low - 1, 0, 0) < 0) return 1;
  if (high > low + 1 && bare_call(SYS_close_range, low + 1, high - 1, 0, 0) < 0) return 1;
  if (bare_call(SYS_close_range, high + 1, ~0U, 0, 0) < 0) return 1;
  bare_call(SYS_setsid, 0, 0, 0, 0);  // Signals to the rank's process group are not for the child.
  const char name[] = "horo-keeper";
  bare_call(SYS_prctl, PR_SET_NAME, reinterpret_cast<long>(name), 0, 0);
  pollfd items[2];
  items[0].fd = watched.pipe;
  items[1].fd = watched.process;
  items[0].events = items[1].events = POLLIN;
  while (bare_call(SYS_ppoll, reinterpret_cast<long>(items), 2, 0, 0) == -EINTR) {
  }
  return 0;
}

}  // namespace

Result<std::unique_ptr<Keeper>> Keeper::start() {
#if !defined(__x86_64__) && !defined(__aarch64__)
  return Status(Code::kUnavailable, "no process to hold the memory of a dying rank on this architecture");
#endif
  if (build_info().sanitizers == "thread") {
    return Status(Code::kUnavailable, "the thread sanitizer cannot follow a process that shares memory");
  }
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return system_error("making a pipe", errno);
  const UniqueFd reading(ends[0]);
  std::unique_ptr<Keeper> keeper(new Keeper);
  keeper->end_.reset(ends[1]);
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  if (!process) return system_error("opening a pidfd", errno);
  keeper->stack_ = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (keeper->stack_ == MAP_FAILED) {
    keeper->stack_ = nullptr;
    return system_error("making a stack", errno);
  }
  auto* watched = new (keeper->stack_) Watched{reading.get(), process.get()};
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  // Without a signal at its end: nobody who waits for children of his own gets it.
  int handle = -1;
  keeper->pid_ =
      clone(keep, static_cast<char*>(keeper->stack_) + kStackBytes, CLONE_VM | CLONE_PIDFD, watched, &handle);
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (keeper->pid_ < 0) return system_error("starting a process that shares memory", error);
  keeper->handle_.reset(handle);
  return keeper;
}

Keeper::~Keeper() {
  end_.reset();
  if (pid_ > 0) {
    // A child of the rank may have the pipe, too. Not by its number: somebody else may have waited for the child.
    syscall(SYS_pidfd_send_signal, handle_.get(), SIGKILL, nullptr, 0);
    while (waitpid(pid_, nullptr, __WCLONE) < 0 && errno == EINTR) {
    }
  }
  if (stack_ != nullptr) munmap(stack_, kStackBytes);
}

}  // namespace horo::net
