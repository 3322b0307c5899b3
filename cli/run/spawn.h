// Starts programs: ranks, agents, ssh.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "horo/base/config.h"
#include "horo/base/status.h"
#include "horo/net/fd.h"

namespace horo::cli::launch {

struct SpawnOptions {
  std::string program;                 ///< A path.
  std::vector<std::string> arguments;  ///< With the program's name first.
  Environment::Variables environment;  ///< All of it.
  std::string folder;                  ///< Where it runs; empty: here.
  /// Its standard streams; -1: nowhere (/dev/null).
  int input = -1;
  int output = -1;
  int error = -1;
  /// Open descriptors that it keeps, and the numbers they get. No number may be among the descriptors.
  struct Kept {
    int descriptor = -1;
    int number = -1;
  };
  std::vector<Kept> kept = {};
  /// What it gets when the thread that starts it ends; 0: nothing.
  int death_signal = 0;
};

struct Child {
  pid_t pid = -1;
  net::UniqueFd handle;  ///< A pidfd; invalid where the system has none.
  /// Holds an errno, once the child has ended, if the program could not be run.
  net::UniqueFd trouble;

  /// The errno that the program could not be run for; 0 when it ran. Only after its end.
  int start_error() const;
};

/// Starts it in a session of its own, with no signal blocked or ignored. Only system calls between fork and exec:
/// threads are fine.
Result<Child> spawn(const SpawnOptions& options);

/// A child that has ended and is still to be reaped, so that its number and that of its process group are its own.
struct EndedChild {
  pid_t pid = 0;
  bool well = false;  ///< With code 0.
};
std::optional<EndedChild> ended_child();

/// What a shell would run for `name`: itself when it has a slash, else the first of `path` (a:b:c) that has it.
/// kNotFound.
Result<std::string> find_program(const std::string& name, std::string_view path);

struct Pipe {
  net::UniqueFd from;  ///< To be read.
  net::UniqueFd to;    ///< To be written.
  static Result<Pipe> create();
};

}  // namespace horo::cli::launch
