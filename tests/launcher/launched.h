// `horo run` as a user runs it: real processes, whose output and end the test sees.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "horo/base/deadline.h"

namespace horo::test {

/// The program under test.
std::string horo_program();
/// A program of tests/programs.
std::string test_program(const std::string& name);

/// A folder that goes with all in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }
  std::string write(const std::string& name, const std::string& contents, int mode = 0644) const;

 private:
  std::string path_;
};

/// A command that runs, with both output streams in files. Its whole session is killed when this goes.
class Launched {
 public:
  struct Options {
    std::vector<std::string> words;
    /// NAME=value on top of this process's own.
    std::vector<std::string> variables = {};
    /// A descriptor to be its standard output; -1: a file.
    int output = -1;
    /// A network namespace to run in; empty: this one.
    std::string network = {};
  };
  explicit Launched(const Options& options);
  ~Launched();
  Launched(const Launched&) = delete;
  Launched& operator=(const Launched&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  /// As a shell has it (128 + signal), or nothing when it still runs at the deadline.
  std::optional<int> wait(Deadline deadline = Deadline::after_seconds(60));
  std::string out() const;
  std::string err() const;
  /// Waits until standard output has `count` lines that contain `words`. False at the deadline.
  bool wait_for_lines(const std::string& words, size_t count, Deadline deadline = Deadline::after_seconds(30));

 private:
  TemporaryFolder folder_;
  pid_t pid_ = -1;
  int handle_ = -1;
  std::optional<int> code_;
};

/// `horo run` with these words, to its end.
struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
};
Outcome run_horo(std::vector<std::string> words, std::vector<std::string> variables = {});

std::vector<std::string> lines_of(const std::string& all);
/// Numbers behind `word` in lines of `all`: "pid 12" gives 12.
std::vector<pid_t> numbers_behind(const std::string& all, const std::string& word);

/// Waits until no process of `pids` is left. False at the deadline.
bool all_gone(const std::vector<pid_t>& pids, Deadline deadline);

/// Waits for `condition`, looking every few milliseconds. False at the deadline.
template <class Condition>
bool eventually(Condition condition, Deadline deadline);

/// Waits a few milliseconds, or less when the deadline comes.
void brief_wait(Deadline deadline);

template <class Condition>
bool eventually(Condition condition, Deadline deadline) {
  while (!condition()) {
    if (deadline.expired()) return false;
    brief_wait(deadline);
  }
  return true;
}

}  // namespace horo::test
