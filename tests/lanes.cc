#include "tests/lanes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "horo/base/deadline.h"

namespace horo::test {

namespace {

constexpr auto kReapLimit = std::chrono::seconds(10);

[[noreturn]] void run_lane(const std::vector<uint64_t>& seeds, int report,
                           const std::function<std::string(uint64_t seed)>& one) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  for (uint64_t seed : seeds) {
    std::string line = one(seed);
    std::replace(line.begin(), line.end(), '\n', ' ');
    line += "\n";
    if (write(report, line.data(), line.size()) < 0) _exit(1);
  }
  _exit(0);
}

}  // namespace

std::string reap_orphans() {
  const Deadline limit = Deadline::after(kReapLimit);
  while (true) {
    const pid_t pid = waitpid(-1, nullptr, WNOHANG);
    if (pid < 0) return "";
    if (pid > 0) continue;
    if (limit.expired()) return "workers are left over";
    const timespec slice{0, 1'000'000};
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigtimedwait(&child, nullptr, &slice);
  }
}

std::vector<std::string> run_lanes(size_t lanes, uint64_t first, uint64_t count,
                                   const std::function<std::string(uint64_t seed)>& one) {
  std::vector<std::string> told;
  int reports[2];
  if (pipe2(reports, O_CLOEXEC) != 0) {
    ADD_FAILURE() << "no pipe";
    return told;
  }
  std::vector<pid_t> pids;
  for (size_t lane = 0; lane < lanes; ++lane) {
    std::vector<uint64_t> seeds;
    for (uint64_t i = lane; i < count; i += lanes) seeds.push_back(first + i);
    pids.push_back(fork());
    EXPECT_GE(pids.back(), 0);
    if (pids.back() == 0) run_lane(seeds, reports[1], one);
  }
  close(reports[1]);
  FILE* lines = fdopen(reports[0], "r");
  char line[8192];
  while (std::fgets(line, sizeof line, lines) != nullptr) told.emplace_back(line);
  std::fclose(lines);
  for (pid_t pid : pids) {
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0) << "a lane broke";
  }
  return told;
}

}  // namespace horo::test
