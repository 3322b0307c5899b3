// Processes that a command of `horo` starts, and what is left behind to be removed: whatever happens to `horo` itself.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "horo/base/config.h"
#include "horo/base/deadline.h"
#include "horo/base/status.h"
#include "horo/net/fd.h"

namespace horo::cli {

struct ProcessOptions {
  std::vector<std::string> arguments;  ///< The program first, with its path.
  Environment::Variables environment;  ///< On top of this process's own; an empty value unsets.
  /// Open descriptors that the child keeps, under their numbers.
  std::vector<int> keep;
  /// The network namespace it runs in (a descriptor); -1: this one.
  int network_namespace = -1;
  bool quiet = false;  ///< Standard output and error go nowhere.
  /// What the child gets when this process ends. A launcher wants SIGTERM, to end its own children.
  int death_signal = 9;
};

/// A child. It is killed (by its process group) when this goes or when this process ends.
class Process {
 public:
  static Result<std::unique_ptr<Process>> start(const ProcessOptions& options);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  /// Its exit code (negative: the signal that ended it), or nothing when it still runs at the deadline.
  std::optional<int> wait(Deadline deadline);
  /// Kills it and waits until it is gone.
  void end();

 private:
  Process(pid_t pid, net::UniqueFd handle) : pid_(pid), handle_(std::move(handle)) {}
  pid_t pid_;
  net::UniqueFd handle_;  ///< A pidfd, to wait with a deadline.
  std::optional<int> code_;
};

/// A child process that removes what this one made, as soon as this one says so or is gone, even by SIGKILL.
class Janitor {
 public:
  /// Call it before there are threads.
  static Result<std::unique_ptr<Janitor>> start();
  /// Has everything removed and waits for it.
  ~Janitor();

  /// A folder of its own for this run, with everything in it.
  Result<std::string> make_folder();
  /// A network namespace that is about to be made.
  void will_make_namespace(const std::string& name);

 private:
  Janitor(pid_t pid, net::UniqueFd orders) : pid_(pid), orders_(std::move(orders)) {}
  void order(const std::string& line);
  pid_t pid_;
  net::UniqueFd orders_;
};

/// Runs a command to its end. kUnavailable with its last words when it fails.
Status run_command(const std::vector<std::string>& arguments, Deadline deadline);

/// The path of the program that runs, and its folder.
std::string own_path();
std::string own_folder();
/// A name that no other run of this program on this machine has: made of the process id.
std::string unique_name(const std::string& prefix);

}  // namespace horo::cli
