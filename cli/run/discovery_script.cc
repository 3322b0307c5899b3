#include "cli/run/discovery_script.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace horo::cli::launch {

namespace {

/// More is not kept: a list of hosts is smaller, and what is cut is no list.
constexpr size_t kMostPrinted = 1 << 20;
constexpr size_t kMostComplaint = 200;

std::string last_line(const std::string& words) {
  const size_t end = words.find_last_not_of("\r\n");
  if (end == words.npos) return {};
  const size_t before = words.find_last_of("\r\n", end);
  const size_t begin = before == words.npos ? 0 : before + 1;
  return words.substr(begin, std::min(end - begin + 1, kMostComplaint));
}

}  // namespace

Result<DiscoveryScript> DiscoveryScript::start(const std::string& script) {
  DiscoveryScript run;
  HORO_ASSIGN(Pipe output, Pipe::create());
  HORO_ASSIGN(Pipe error, Pipe::create());
  SpawnOptions options;
  options.program = "/bin/sh";
  options.arguments = {"/bin/sh", "-c", script};
  options.environment = Environment::of_process().variables();
  options.output = output.to.get();
  options.error = error.to.get();
  options.death_signal = SIGKILL;
  HORO_ASSIGN(run.child_, spawn(options));
  run.output_ = std::move(output.from);
  run.error_ = std::move(error.from);
  fcntl(run.output_.get(), F_SETFL, O_NONBLOCK);
  fcntl(run.error_.get(), F_SETFL, O_NONBLOCK);
  return run;
}

bool DiscoveryScript::read(const net::UniqueFd& from, std::string& into) {
  std::array<char, 4096> bytes;
  const ssize_t got = ::read(from.get(), bytes.data(), bytes.size());
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (into.size() < kMostPrinted) into.append(bytes.data(), static_cast<size_t>(got));
  return got > 0;
}

void DiscoveryScript::kill_all() const { kill(-child_.pid, SIGKILL); }

Discovery::Run DiscoveryScript::result(int status) {
  // What is in the pipes counts; whoever still holds their other ends does not.
  constexpr int kPipeful = 1 << 8;
  for (int i = 0; i < kPipeful && read_output(); ++i) {
  }
  for (int i = 0; i < kPipeful && read_error(); ++i) {
  }
  Discovery::Run run;
  run.code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  run.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  run.printed = printed_;
  run.complaint = last_line(complained_);
  return run;
}

}  // namespace horo::cli::launch
