#include "cli/run/tree.h"

#include <dirent.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <memory>
#include <set>
#include <string>

#include "horo/base/cgroup.h"
#include "horo/base/text.h"
#include "horo/net/fd.h"

namespace horo::cli::launch {

namespace {

std::optional<ProcessFacts> facts_of(std::string_view pid) {
  return parse_stat(read_small_file(text("/proc/", pid, "/stat")).value_or(""));  // It may end at any time.
}

/// By pidfd, after which the process is looked at again: a number that was given to another process in between is not
/// hit.
void signal_process(const ProcessFacts& process, int number) {
  const net::UniqueFd handle(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0)));
  const auto now = facts_of(text(process.pid));
  // Its parent may have ended meanwhile; then it is ours.
  const bool same = now && (now->parent == process.parent || now->parent == getpid());
  if (!same) return;
  if (handle) {
    syscall(SYS_pidfd_send_signal, handle.get(), number, nullptr, 0);
  } else {
    kill(process.pid, number);
  }
}

}  // namespace

std::optional<ProcessFacts> parse_stat(std::string_view contents) {
  // "12 (a name (with) anything) S 7 ...": the name ends at the last parenthesis.
  const size_t close = contents.rfind(')');
  if (close == contents.npos || close + 4 > contents.size()) return {};
  ProcessFacts facts;
  const char* const end = contents.data() + contents.size();
  if (std::from_chars(contents.data(), end, facts.pid).ec != std::errc()) return {};
  facts.state = contents[close + 2];
  if (std::from_chars(contents.data() + close + 4, end, facts.parent).ec != std::errc()) return {};
  return facts;
}

std::vector<ProcessFacts> descendants(const std::vector<ProcessFacts>& all, pid_t root) {
  std::vector<ProcessFacts> found;
  std::set<pid_t> family{root};
  for (bool grown = true; grown;) {
    grown = false;
    for (const ProcessFacts& process : all) {
      if (family.count(process.parent) == 0 || !family.insert(process.pid).second) continue;
      found.push_back(process);
      grown = true;
    }
  }
  return found;
}

std::vector<ProcessFacts> running_processes() {
  std::vector<ProcessFacts> all;
  std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc"), closedir);
  if (!folder) return all;
  while (const dirent* entry = readdir(folder.get())) {
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
    if (const auto facts = facts_of(entry->d_name)) all.push_back(*facts);
  }
  return all;
}

size_t signal_descendants(int number) {
  size_t living = 0;
  for (const ProcessFacts& process : descendants(running_processes(), getpid())) {
    if (process.is_dead()) continue;
    ++living;
    signal_process(process, number);
  }
  return living;
}

}  // namespace horo::cli::launch
