#include "cli/run/capture.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "cli/run/spawn.h"

#include "horo/base/text.h"
#include "horo/net/poller.h"

namespace horo::cli::launch {

namespace {

/// Everything up to the end; what came until then when the deadline passes first.
std::pair<std::string, bool> read_all(int fd, Deadline deadline) {
  constexpr size_t kMost = 16 << 20;
  std::string all;
  std::array<char, 4096> bytes;
  while (net::wait_ready(fd, net::Interest::kRead, deadline, "a program").ok() && all.size() < kMost) {
    const ssize_t got = read(fd, bytes.data(), bytes.size());
    if (got <= 0) return {all, true};
    all.append(bytes.data(), static_cast<size_t>(got));
  }
  return {all, false};
}

}  // namespace

Result<std::string> capture(const std::vector<std::string>& words, Deadline deadline) {
  const Environment environment = Environment::of_process();
  HORO_ASSIGN(const std::string program, find_program(words[0], environment.find("PATH").value_or("")));
  HORO_ASSIGN(Pipe pipe, Pipe::create());
  SpawnOptions options;
  options.program = program;
  options.arguments = words;
  options.environment = environment.variables();
  options.output = pipe.to.get();
  options.error = STDERR_FILENO;
  options.death_signal = SIGKILL;
  HORO_ASSIGN(const Child child, spawn(options));
  pipe.to.reset();
  const auto [said, whole] = read_all(pipe.from.get(), deadline);
  if (!whole) kill(-child.pid, SIGKILL);
  int status = 0;
  waitpid(child.pid, &status, 0);
  if (!whole) return Status(Code::kTimeout, text("'", words.back(), "' did not end in time"));
  if (status == 0) return said;
  return Status(Code::kUnavailable,
                text("'", words.back(), "' failed (",
                     WIFEXITED(status) ? text("code ", WEXITSTATUS(status)) : text("signal ", WTERMSIG(status)), ")"));
}

}  // namespace horo::cli::launch
