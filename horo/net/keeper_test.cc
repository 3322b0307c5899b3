#include "horo/net/keeper.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>

#include "horo/base/build.h"
#include "horo/base/deadline.h"
#include "horo/base/text.h"

namespace horo::net {
namespace {

constexpr int kPatienceMs = 10'000;

UniqueFd open_process(pid_t pid) { return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))); }

/// Readable or ended within the patience.
bool comes(int fd) {
  pollfd item{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&item, 1, kPatienceMs) == 1;
}

/// A process with a keeper and a connection to this one, as a rank is.
class Rank {
 public:
  /// `then` runs in it when it has told this one the keeper's number.
  explicit Rank(const std::function<void(Keeper&)>& then) {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    mine_.reset(ends[0]);
    UniqueFd theirs(ends[1]);
    pid_ = fork();
    if (pid_ < 0) throw std::runtime_error("cannot fork");  // A signal to -1 would reach everybody.
    if (pid_ == 0) {
      mine_.reset();
      auto keeper = Keeper::start();
      const pid_t number = keeper.ok() ? (*keeper)->pid() : -1;
      if (write(theirs.get(), &number, sizeof number) != sizeof number || number < 0) _exit(1);
      then(**keeper);
      _exit(0);
    }
    theirs.reset();
    EXPECT_EQ(read(mine_.get(), &keeper_, sizeof keeper_), ssize_t{sizeof keeper_});
    handle_ = open_process(keeper_);
    EXPECT_TRUE(handle_.valid());
  }
  ~Rank() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  pid_t pid() const { return pid_; }
  pid_t keeper() const { return keeper_; }
  bool connection_ends() const {
    char byte = 0;
    return comes(mine_.get()) && read(mine_.get(), &byte, 1) == 0;
  }
  bool keeper_ends() const { return comes(handle_.get()); }
  void signal_keeper(int number) const {
    EXPECT_EQ(syscall(SYS_pidfd_send_signal, handle_.get(), number, nullptr, 0), 0);
  }

 private:
  UniqueFd mine_;
  UniqueFd handle_;
  pid_t pid_ = -1;
  pid_t keeper_ = -1;
};

[[noreturn]] void wait_for_ever(Keeper&) {
  while (true) pause();
}

std::string about(pid_t pid, const std::string& field) {
  std::ifstream status(text("/proc/", pid, "/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field + ":")) return line.substr(field.size() + 1);
  }
  return {};
}

/// Until the kernel says so about the process.
void expect_soon(pid_t pid, const std::string& field, std::string_view words) {
  const Deadline deadline = Deadline::after(std::chrono::milliseconds(kPatienceMs));
  while (about(pid, field).find(words) == std::string::npos && !deadline.expired()) sched_yield();
  EXPECT_NE(about(pid, field).find(words), std::string::npos) << about(pid, field);
}

/// Until it has closed what it has of the rank: its name comes last of what it does before it sleeps.
void expect_ready(pid_t keeper) { expect_soon(keeper, "Name", "horo-keeper"); }

class KeeperTest : public testing::Test {
 protected:
  void SetUp() override {
    if (build_info().sanitizers == "thread") GTEST_SKIP() << "TSan cannot follow a process that shares memory";
  }
};

TEST_F(KeeperTest, ConnectionsOfAKilledRankEndWhileItsMemoryIsHeld) {
  const Rank rank(wait_for_ever);
  expect_ready(rank.keeper());
  // Stopped, the keeper cannot let the memory go.
  rank.signal_keeper(SIGSTOP);
  expect_soon(rank.keeper(), "State", "T (stopped)");
  kill(rank.pid(), SIGKILL);
  EXPECT_TRUE(rank.connection_ends());
  EXPECT_NE(about(rank.keeper(), "VmRSS"), "") << "the memory is gone";
  rank.signal_keeper(SIGCONT);
  EXPECT_TRUE(rank.keeper_ends());
}

TEST_F(KeeperTest, EndsWhenTheRankStartsAnotherProgram) {
  const Rank rank([](Keeper&) { execl("/bin/sleep", "sleep", "60", nullptr); });
  EXPECT_TRUE(rank.keeper_ends());
  EXPECT_EQ(kill(rank.pid(), 0), 0);
}

TEST_F(KeeperTest, EndsWithTheRankThoughAChildHasAllItsDescriptors) {
  std::array<int, 2> hold{};
  ASSERT_EQ(pipe(hold.data()), 0);
  const UniqueFd until(hold[1]);
  const Rank rank([&](Keeper& keeper) {
    if (fork() == 0) {
      close(hold[1]);
      char byte = 0;
      (void)!read(hold[0], &byte, 1);
      _exit(0);
    }
    wait_for_ever(keeper);
  });
  close(hold[0]);
  kill(rank.pid(), SIGKILL);
  EXPECT_TRUE(rank.keeper_ends());
}

TEST_F(KeeperTest, HasNothingOfTheRankButItsMemory) {
  const Rank rank(wait_for_ever);
  expect_ready(rank.keeper());
  EXPECT_EQ(getsid(rank.keeper()), rank.keeper());
  size_t descriptors = 0;
  for (const auto& entry : std::filesystem::directory_iterator(text("/proc/", rank.keeper(), "/fd"))) {
    descriptors += entry.is_symlink() ? 1 : 0;
  }
  EXPECT_EQ(descriptors, 2u);
  kill(rank.keeper(), SIGTERM);
  kill(rank.keeper(), SIGINT);
  kill(rank.pid(), SIGKILL);
  EXPECT_TRUE(rank.keeper_ends());
}

TEST_F(KeeperTest, IsReapedByItsOwnerAndByNobodyElse) {
  auto keeper = Keeper::start();
  ASSERT_TRUE(keeper.ok()) << keeper.status();
  const pid_t pid = (*keeper)->pid();
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a program that waits for its children sees the keeper";
  EXPECT_EQ(kill(pid, 0), 0);
  keeper->reset();
  EXPECT_EQ(kill(pid, 0), -1);
}

TEST_F(KeeperTest, LeavesTheErrorNumberAndTheSignalsOfItsMakerAlone) {
  sigset_t before;
  sigset_t after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  for (int i = 0; i < 200; ++i) {
    errno = 0;
    auto keeper = Keeper::start();
    ASSERT_TRUE(keeper.ok()) << keeper.status();
    const UniqueFd handle = open_process((*keeper)->pid());
    EXPECT_EQ(errno, 0);
  }
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (int number = 1; number < 32; ++number) EXPECT_EQ(sigismember(&before, number), sigismember(&after, number));
}

}  // namespace
}  // namespace horo::net
