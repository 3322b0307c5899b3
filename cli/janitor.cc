#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <system_error>

#include "cli/process.h"

#include "horo/base/text.h"

namespace horo::cli {

namespace {

void remove_namespace(const std::string& name) {
  const pid_t pid = fork();
  if (pid == 0) {
    // A namespace that was announced and never made is no error.
    const int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, 2);
    execlp("ip", "ip", "netns", "delete", name.c_str(), nullptr);
    _exit(127);
  }
  if (pid > 0) waitpid(pid, nullptr, 0);
}

/// Reads orders until the pipe ends, that is until the process that gave them is done or gone; then carries them out.
[[noreturn]] void clean_up_after(int orders) {
  setsid();  // Ctrl-C is for the others.
  signal(SIGTERM, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  std::string all;
  char buffer[512];
  for (ssize_t got = 0; (got = read(orders, buffer, sizeof buffer)) > 0;) all.append(buffer, static_cast<size_t>(got));
  std::istringstream lines(all);
  for (std::string kind, what; lines >> kind >> what;) {
    if (kind == "namespace") remove_namespace(what);
    std::error_code ignored;
    if (kind == "folder") std::filesystem::remove_all(what, ignored);
  }
  _exit(0);
}

}  // namespace

Result<std::unique_ptr<Janitor>> Janitor::start() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Status(Code::kUnavailable, "no descriptors for a pipe");
  net::UniqueFd from(ends[0]), to(ends[1]);
  const pid_t pid = fork();
  if (pid < 0) return Status(Code::kUnavailable, "cannot fork");
  if (pid == 0) {
    close(to.get());
    clean_up_after(from.get());
  }
  return std::unique_ptr<Janitor>(new Janitor(pid, std::move(to)));
}

Janitor::~Janitor() {
  orders_.reset();
  waitpid(pid_, nullptr, 0);
}

void Janitor::order(const std::string& line) {
  const std::string whole = line + "\n";
  if (write(orders_.get(), whole.data(), whole.size()) < 0) kill(pid_, SIGKILL);
}

Result<std::string> Janitor::make_folder() {
  std::error_code missing;  // TMPDIR may name anything.
  std::string pattern = (std::filesystem::temp_directory_path(missing) / "horo-XXXXXX").string();
  if (missing || mkdtemp(pattern.data()) == nullptr) {
    return Status(Code::kUnavailable,
                  text("cannot make a folder for temporary files", missing ? "" : text(" like ", pattern), ": ",
                       missing ? missing.message() : std::generic_category().message(errno),
                       "; set TMPDIR to one that is writable"));
  }
  order("folder " + pattern);
  return pattern;
}

void Janitor::will_make_namespace(const std::string& name) { order("namespace " + name); }

}  // namespace horo::cli
