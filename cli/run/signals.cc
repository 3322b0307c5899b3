#include "cli/run/signals.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "horo/net/system_error.h"

namespace horo::cli::launch {

Result<Signals> Signals::watch(std::initializer_list<int> numbers) {
  sigset_t set;
  sigemptyset(&set);
  // An ignored SIGCHLD, which can be inherited, would have the kernel reap children unseen.
  signal(SIGCHLD, SIG_DFL);
  for (int number : numbers) {
    struct sigaction old {};
    // What whoever started us chose to ignore stays ignored (nohup).
    if (sigaction(number, nullptr, &old) == 0 && old.sa_handler != SIG_IGN) sigaddset(&set, number);
  }
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, nullptr);
  if (const int error = pthread_sigmask(SIG_BLOCK, &set, nullptr); error != 0) {
    return net::system_error("blocking signals", error);
  }
  net::UniqueFd fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) return net::system_error("opening a descriptor for signals", errno);
  return Signals(std::move(fd));
}

std::vector<int> Signals::take() {
  std::vector<int> numbers;
  signalfd_siginfo info{};
  while (read(fd_.get(), &info, sizeof info) == sizeof info) numbers.push_back(static_cast<int>(info.ssi_signo));
  return numbers;
}

}  // namespace horo::cli::launch
