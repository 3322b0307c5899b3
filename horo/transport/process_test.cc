#include "horo/transport/process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "horo/base/system.h"

namespace horo::transport {
namespace {

constexpr size_t kBytes = 300'000;

/// A child of this process that has `value` everywhere in a block of its own, and waits.
class Child {
 public:
  explicit Child(std::byte value)
      : block_(static_cast<std::byte*>(
            mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    id_ = fork();
    if (id_ == 0) {
      std::memset(block_, static_cast<int>(value), kBytes);
      if (write(ready[1], "", 1) == 1) pause();
      _exit(1);
    }
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
  }
  ~Child() {
    end();
    munmap(block_, kBytes);
  }
  void kill() const { ::kill(id_, SIGKILL); }
  void end() {
    if (id_ <= 0) return;
    kill();
    waitpid(id_, nullptr, 0);
    id_ = 0;
  }
  pid_t id() const { return id_; }
  uint64_t address() const { return reinterpret_cast<uintptr_t>(block_); }

 private:
  std::byte* block_;
  pid_t id_ = 0;
};

Process::Proof proof_of(std::byte value) {
  Process::Proof proof;
  proof.fill(value);
  return proof;
}

/// Why `process` cannot be read on this system at all; empty if it can.
std::string denied(const Process& process) {
  const int error = process.try_to_read();
  return error == EPERM || error == ENOSYS ? std::strerror(error) : "";
}

class ReadProcess : public testing::Test {
 protected:
  void SetUp() override {
    if (!denied(process_).empty()) GTEST_SKIP() << "here no process may read another: " << denied(process_);
  }
  Child child_{std::byte{7}};
  Process process_{child_.id(), child_.address(), proof_of(std::byte{7})};
  std::vector<std::byte> to_ = std::vector<std::byte>(kBytes - 1);
};

TEST_F(ReadProcess, GivesWhatIsThereWhereverItBegins) {
  EXPECT_EQ(process_.try_to_read(), 0);
  EXPECT_EQ(process_.read(to_, child_.address() + 1), 0);
  EXPECT_EQ(to_, std::vector<std::byte>(kBytes - 1, std::byte{7}));
}

TEST_F(ReadProcess, SaysThatAddressesAreWrong) {
  EXPECT_EQ(process_.read(to_, 4096), EFAULT);
  EXPECT_EQ(Process(child_.id(), 4096, proof_of(std::byte{7})).read(to_, child_.address()), EFAULT);
}

TEST_F(ReadProcess, TakesNoOtherForIt) {
  Child other(std::byte{8});
  EXPECT_EQ(Process(other.id(), child_.address(), proof_of(std::byte{7})).read(to_, child_.address()), ESRCH);
}

TEST_F(ReadProcess, NoticesThatItHasEnded) {
  child_.kill();
  siginfo_t ended{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child_.id()), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(process_.read(to_, child_.address()), ESRCH) << "nobody has asked how it ended";
  child_.end();
  EXPECT_EQ(process_.read(to_, child_.address()), ESRCH);
}

TEST(CanBeRead, TellsMemoryFromWhatIsNone) {
  const Process::Proof proof = proof_of(std::byte{7});
  const Process own(getpid(), reinterpret_cast<uintptr_t>(proof.data()), proof);
  if (!denied(own).empty()) GTEST_SKIP() << "here no process may read even itself: " << denied(own);
  std::vector<std::byte> memory(10);
  EXPECT_TRUE(can_be_read(memory));
  EXPECT_TRUE(can_be_read({}));
  void* none = mmap(nullptr, page_size(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(none, MAP_FAILED);
  EXPECT_FALSE(can_be_read({static_cast<const std::byte*>(none), page_size()}));
  munmap(none, page_size());
}

}  // namespace
}  // namespace horo::transport
