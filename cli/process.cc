#include "cli/process.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "horo/base/text.h"
#include "horo/net/poller.h"

namespace horo::cli {

namespace {

std::vector<std::string> environment_lines(const Environment::Variables& changes) {
  std::vector<std::string> lines;
  const Environment all = Environment::of_process().with(changes);
  for (const auto& [name, value] : all.variables()) lines.push_back(text(name, "=", value));
  return lines;
}

std::vector<char*> pointers(std::vector<std::string>& lines) {
  std::vector<char*> list;
  for (std::string& line : lines) list.push_back(line.data());
  list.push_back(nullptr);
  return list;
}

/// Between fork and exec: system calls only.
[[noreturn]] void become(const ProcessOptions& options, pid_t parent, char* const* arguments,
                         char* const* environment) {
  prctl(PR_SET_PDEATHSIG, options.death_signal);
  if (getppid() != parent) _exit(127);  // The parent went before the line above.
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (options.network_namespace >= 0 && setns(options.network_namespace, CLONE_NEWNET) != 0) _exit(126);
  if (options.quiet) {
    const int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, 1);
    dup2(nowhere, 2);
  }
  for (int fd : options.keep) fcntl(fd, F_SETFD, 0);
  execve(arguments[0], arguments, environment);
  _exit(127);
}

std::optional<int> code_of(pid_t pid) {
  int status = 0;
  if (waitpid(pid, &status, 0) != pid) return -1;
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

Result<std::unique_ptr<Process>> Process::start(const ProcessOptions& options) {
  std::vector<std::string> arguments = options.arguments;
  std::vector<std::string> lines = environment_lines(options.environment);
  const std::vector<char*> argument_list = pointers(arguments);
  const std::vector<char*> environment_list = pointers(lines);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) become(options, parent, argument_list.data(), environment_list.data());
  if (pid < 0) {
    return Status(Code::kUnavailable, text("cannot start ", options.arguments[0], ": ", std::strerror(errno)));
  }
  setpgid(pid, pid);  // Whoever comes first, so that signal() always finds the group.
  net::UniqueFd handle(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  return std::unique_ptr<Process>(new Process(pid, std::move(handle)));
}

Process::~Process() { end(); }

void Process::signal(int number) const {
  if (!code_) kill(pid_, number);
}

std::optional<int> Process::wait(Deadline deadline) {
  if (code_) return code_;
  if (handle_.valid()) {
    if (!net::wait_ready(handle_.get(), net::Interest::kRead, deadline, "the end of a process").ok()) return {};
  } else if (deadline.expired()) {
    return {};
  }
  return code_ = code_of(pid_);
}

void Process::end() {
  if (code_) return;
  kill(-pid_, SIGKILL);
  kill(pid_, SIGKILL);
  code_ = code_of(pid_);
}

Status run_command(const std::vector<std::string>& arguments, Deadline deadline) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Status(Code::kUnavailable, "no descriptors for a pipe");
  net::UniqueFd from(ends[0]), to(ends[1]);
  ProcessOptions options;
  // The shell puts both streams of the command into the pipe; the command itself is passed as arguments, unquoted.
  options.arguments = {"/bin/sh", "-c", text("exec \"$@\" 1>&", to.get(), " 2>&1"), "sh"};
  options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
  options.keep = {to.get()};
  HORO_ASSIGN(auto process, Process::start(options));
  to.reset();
  std::string said;
  char buffer[512];
  while (net::wait_ready(from.get(), net::Interest::kRead, deadline, "a command").ok()) {
    const ssize_t got = read(from.get(), buffer, sizeof buffer);
    if (got <= 0) break;
    said.append(buffer, static_cast<size_t>(got));
  }
  const auto code = process->wait(deadline);
  if (code == 0) return {};
  std::string command;
  for (const std::string& word : arguments) command += (command.empty() ? "" : " ") + word;
  while (!said.empty() && said.back() == '\n') said.pop_back();
  return Status(Code::kUnavailable,
                text("'", command, "' ", code ? text("failed (", *code, ")") : "did not end", ": ", said));
}

std::string own_path() { return std::filesystem::read_symlink("/proc/self/exe").string(); }
std::string own_folder() { return std::filesystem::path(own_path()).parent_path().string(); }
std::string unique_name(const std::string& prefix) { return text(prefix, getpid()); }

}  // namespace horo::cli
