// All that ranks started, and what they started: found in /proc, ended to the last one.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string_view>
#include <vector>

namespace horo::cli::launch {

struct ProcessFacts {
  pid_t pid = 0;
  pid_t parent = 0;
  char state = '?';  ///< 'Z' and 'X' are dead.

  bool is_dead() const { return state == 'Z' || state == 'X'; }
};

/// From the contents of /proc/PID/stat.
std::optional<ProcessFacts> parse_stat(std::string_view contents);

/// Descendants of `root` in `all`, parents before children.
std::vector<ProcessFacts> descendants(const std::vector<ProcessFacts>& all, pid_t root);

/// Of this system, now.
std::vector<ProcessFacts> running_processes();

/// Sends `number` to every living descendant of this process. How many there were.
size_t signal_descendants(int number);

}  // namespace horo::cli::launch
