#include "cli/run/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "horo/base/text.h"
#include "horo/net/system_error.h"

namespace horo::cli::launch {

namespace {

std::vector<char*> pointers(std::vector<std::string>& lines) {
  std::vector<char*> list;
  for (std::string& line : lines) list.push_back(line.data());
  list.push_back(nullptr);
  return list;
}

/// What the child needs, made before the fork.
struct Prepared {
  const SpawnOptions& options;
  char* const* arguments;
  char* const* environment;
  char* const* shell_arguments;  ///< For a script without "#!".
  pid_t parent;
  int trouble;
};

void forget_signal_settings() {
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number) sigaction(number, &usual, nullptr);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

/// Descriptors 0 to 2 may be among the ones that are moved, so all are moved out of the way first.
bool arrange_descriptors(const SpawnOptions& options) {
  constexpr int kAbove = 10;
  const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
  int moved[3];
  const int wanted[3] = {options.input, options.output, options.error};
  for (int i = 0; i < 3; ++i) moved[i] = fcntl(wanted[i] < 0 ? nowhere : wanted[i], F_DUPFD_CLOEXEC, kAbove);
  for (int i = 0; i < 3; ++i) {
    if (moved[i] < 0 || dup2(moved[i], i) < 0) return false;
  }
  for (const SpawnOptions::Kept& one : options.kept) {
    const bool in_place = one.descriptor == one.number;
    if (in_place ? fcntl(one.descriptor, F_SETFD, 0) != 0 : dup2(one.descriptor, one.number) < 0) return false;
  }
  return true;
}

/// Above all numbers that the program keeps.
int free_number(const SpawnOptions& options) {
  int number = 3;
  for (const SpawnOptions::Kept& one : options.kept) number = std::max(number, one.number + 1);
  return number;
}

[[noreturn]] void become(const Prepared& prepared) {
  const SpawnOptions& options = prepared.options;
  setsid();
  if (options.death_signal != 0) {
    prctl(PR_SET_PDEATHSIG, options.death_signal);
    if (getppid() != prepared.parent) _exit(127);  // The parent went before the line above.
  }
  forget_signal_settings();
  const int trouble = fcntl(prepared.trouble, F_DUPFD_CLOEXEC, free_number(options));
  bool ready = arrange_descriptors(options);
  if (ready && !options.folder.empty()) ready = chdir(options.folder.c_str()) == 0;
  if (ready) {
    execve(options.program.c_str(), prepared.arguments, prepared.environment);
    if (errno == ENOEXEC) execve("/bin/sh", prepared.shell_arguments, prepared.environment);
  }
  const int why = errno;
  // The parent reads it after our end; if even this fails, the exit code tells.
  if (write(trouble, &why, sizeof why) < 0) _exit(127);
  _exit(why == ENOENT ? 127 : 126);
}

}  // namespace

Result<Pipe> Pipe::create() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return net::system_error("opening a pipe", errno);
  return Pipe{net::UniqueFd(ends[0]), net::UniqueFd(ends[1])};
}

int Child::start_error() const {
  int why = 0;
  return read(trouble.get(), &why, sizeof why) == sizeof why ? why : 0;
}

Result<Child> spawn(const SpawnOptions& options) {
  std::vector<std::string> arguments = options.arguments;
  std::vector<std::string> shell{"/bin/sh", options.program};
  shell.insert(shell.end(), arguments.begin() + 1, arguments.end());
  std::vector<std::string> variables;
  for (const auto& [name, value] : options.environment) variables.push_back(text(name, "=", value));
  HORO_ASSIGN(Pipe trouble, Pipe::create());
  fcntl(trouble.from.get(), F_SETFL, O_NONBLOCK);
  const std::vector<char*> argument_list = pointers(arguments);
  const std::vector<char*> variable_list = pointers(variables);
  const std::vector<char*> shell_list = pointers(shell);
  const Prepared prepared{options,  argument_list.data(), variable_list.data(), shell_list.data(),
                          getpid(), trouble.to.get()};
  const pid_t pid = fork();
  if (pid == 0) become(prepared);
  if (pid < 0) return net::system_error(text("starting ", options.program), errno);
  Child child;
  child.pid = pid;
  child.handle = net::UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  child.trouble = std::move(trouble.from);
  return child;
}

std::optional<EndedChild> ended_child() {
  siginfo_t info{};
  if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return {};
  return EndedChild{info.si_pid, info.si_code == CLD_EXITED && info.si_status == 0};
}

Result<std::string> find_program(const std::string& name, std::string_view path) {
  if (name.find('/') != name.npos) return name;
  if (path.empty()) path = "/usr/local/bin:/usr/bin:/bin";
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const std::string_view folder = path.substr(begin, end - begin);
    const std::string candidate = text(folder.empty() ? "." : folder, "/", name);
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
    begin = end + 1;
  }
  return Status(Code::kNotFound, text("command not found: '", name, "' is in no folder of PATH (", path, ")"));
}

}  // namespace horo::cli::launch
