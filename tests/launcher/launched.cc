#include "tests/launcher/launched.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>

#include "horo/base/cgroup.h"
#include "horo/base/text.h"

namespace horo::test {

namespace {

std::string contents_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

[[noreturn]] void become(const Launched::Options& options, const TemporaryFolder& folder) {
  setsid();
  if (!options.network.empty()) {
    const int fd = open(text("/run/netns/", options.network).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) _exit(99);
  }
  const int flags = O_WRONLY | O_CREAT | O_APPEND;
  dup2(open("/dev/null", O_RDONLY), 0);
  dup2(options.output >= 0 ? options.output : open(folder.file("out").c_str(), flags, 0644), 1);
  dup2(open(folder.file("err").c_str(), flags, 0644), 2);
  std::vector<std::string> words = options.words;
  std::vector<std::string> variables = options.variables;
  for (std::string& variable : variables) putenv(variable.data());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  _exit(98);
}

}  // namespace

std::string horo_program() { return HORO_BINARY_DIR "/bin/horo"; }
std::string test_program(const std::string& name) { return HORO_TEST_PROGRAMS "/test_" + name; }

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "horo-run-XXXXXX").string();
  if (mkdtemp(pattern.data()) != nullptr) path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

std::string TemporaryFolder::write(const std::string& name, const std::string& contents, int mode) const {
  std::ofstream(file(name), std::ios::binary) << contents;
  chmod(file(name).c_str(), static_cast<mode_t>(mode));
  return file(name);
}

Launched::Launched(const Options& options) {
  pid_ = fork();
  if (pid_ == 0) become(options, folder_);
  if (pid_ < 0) throw std::runtime_error("cannot fork");  // A signal to -1 would reach everybody.
  handle_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
}

Launched::~Launched() {
  if (!code_) {
    kill(-pid_, SIGKILL);
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (handle_ >= 0) close(handle_);
}

void Launched::signal(int number) const { kill(pid_, number); }

std::optional<int> Launched::wait(Deadline deadline) {
  if (code_) return code_;
  pollfd item{handle_, POLLIN, 0};
  if (poll(&item, 1, deadline.poll_milliseconds()) <= 0) return {};
  int status = 0;
  if (waitpid(pid_, &status, 0) != pid_) return {};
  return code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::string Launched::out() const { return contents_of(folder_.file("out")); }
std::string Launched::err() const { return contents_of(folder_.file("err")); }

bool Launched::wait_for_lines(const std::string& words, size_t count, Deadline deadline) {
  return eventually(
      [&] {
        const auto lines = lines_of(out());
        const auto found = std::count_if(lines.begin(), lines.end(),
                                         [&](const std::string& line) { return line.find(words) != line.npos; });
        return static_cast<size_t>(found) >= count;
      },
      deadline);
}

Outcome run_horo(std::vector<std::string> words, std::vector<std::string> variables) {
  words.insert(words.begin(), {horo_program(), "run"});
  Launched launched({.words = std::move(words), .variables = std::move(variables)});
  const auto code = launched.wait(Deadline::after_seconds(120));
  return {code.value_or(-1), launched.out(), launched.err()};
}

std::vector<std::string> lines_of(const std::string& all) {
  std::vector<std::string> lines;
  std::istringstream stream(all);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<pid_t> numbers_behind(const std::string& all, const std::string& word) {
  std::vector<pid_t> numbers;
  for (size_t at = all.find(word); at != all.npos; at = all.find(word, at + 1)) {
    numbers.push_back(std::atoi(all.c_str() + at + word.size()));
  }
  return numbers;
}

bool all_gone(const std::vector<pid_t>& pids, Deadline deadline) {
  return eventually(
      [&] {
        return std::none_of(pids.begin(), pids.end(), [](pid_t pid) {
          const std::string facts = read_small_file(text("/proc/", pid, "/stat")).value_or("");
          const size_t close = facts.rfind(')');
          return close != facts.npos && facts.substr(close + 2, 1) != "Z";
        });
      },
      deadline);
}

void brief_wait(Deadline deadline) { poll(nullptr, 0, std::clamp(deadline.poll_milliseconds(), 0, 5)); }

}  // namespace horo::test
