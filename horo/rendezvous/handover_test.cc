#include "horo/rendezvous/handover.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "horo/net/testing.h"

namespace horo::rendezvous {
namespace {

using net::testing::soon;

class HandoverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/handover-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    home_ = pattern;
    folder_ = handover_folder(home_);
  }
  void TearDown() override { std::filesystem::remove_all(home_); }

  size_t files() const {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_)) ++count;
    return count;
  }

  std::string home_, folder_;
  const net::Key key_ = *net::Key::random();
};

bool same(const net::Key& a, const net::Key& b) { return std::ranges::equal(a.secret(), b.secret()); }

TEST_F(HandoverTest, ReachesWhoWaitsAndWhoComesLaterAndLeavesNothing) {
  std::thread early([&] {
    auto got = await_handover(folder_, "run/1", soon());
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->store, "127.0.0.1:1");
    EXPECT_TRUE(same(got->key, key_));
  });
  {
    auto letter = Handover::leave(folder_, "run/1", key_, "127.0.0.1:1");
    ASSERT_TRUE(letter.ok()) << letter.status();
    early.join();
    EXPECT_TRUE(await_handover(folder_, "run/1", soon()).ok());
    struct stat found {};
    ASSERT_EQ(stat(folder_.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777, 0700u);
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      ASSERT_EQ(stat(entry.path().c_str(), &found), 0);
      EXPECT_EQ(found.st_mode & 0777, 0600u);
    }
    // Another run, however similar its name, does not see it.
    EXPECT_EQ(await_handover(folder_, "run.1", Deadline::after(std::chrono::milliseconds(20))).status().code(),
              Code::kTimeout);
  }
  EXPECT_EQ(files(), 0u);
}

TEST_F(HandoverTest, OfARunThatDiedIsNotBelievedAndIsReplaced) {
  const pid_t child = fork();
  if (child == 0) {
    auto letter = Handover::leave(folder_, "none", key_, "127.0.0.1:1");
    _exit(letter.ok() ? 0 : 1);  // Without a destructor: as killed.
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ASSERT_EQ(files(), 1u);
  EXPECT_EQ(await_handover(folder_, "none", Deadline::after(std::chrono::milliseconds(20))).status().code(),
            Code::kTimeout);
  const net::Key fresh = *net::Key::random();
  auto letter = Handover::leave(folder_, "none", fresh, "127.0.0.1:2");
  ASSERT_TRUE(letter.ok()) << letter.status();
  auto got = await_handover(folder_, "none", soon());
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->store, "127.0.0.1:2");
  EXPECT_TRUE(same(got->key, fresh));
}

TEST_F(HandoverTest, ALaterOneOfTheSameNameStaysWhenTheEarlierEnds) {
  auto later = [&] {
    auto earlier = Handover::leave(folder_, "a", key_, "127.0.0.1:1");
    return Handover::leave(folder_, "a", key_, "127.0.0.1:2");
  }();
  ASSERT_TRUE(later.ok()) << later.status();
  EXPECT_EQ(await_handover(folder_, "a", soon())->store, "127.0.0.1:2");
}

TEST_F(HandoverTest, OldFilesOfDeadRunsAreSweptAway) {
  ASSERT_EQ(mkdir(folder_.c_str(), 0700), 0);
  for (const char* name : {"old", "new"}) std::ofstream(folder_ + "/" + name) << "x";
  const timespec long_ago[2] = {{1, 0}, {1, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, (folder_ + "/old").c_str(), long_ago, 0), 0);
  auto letter = Handover::leave(folder_, "a", key_, "127.0.0.1:1");
  ASSERT_TRUE(letter.ok()) << letter.status();
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/old"));
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/new"));
}

TEST_F(HandoverTest, RefusesFoldersThatOthersCouldHavePlanted) {
  const auto refused = [&](std::string_view words) {
    const Status left = Handover::leave(folder_, "a", key_, "127.0.0.1:1").status();
    const Status awaited = await_handover(folder_, "a", soon()).status();
    EXPECT_EQ(left.code(), Code::kUnauthenticated) << left;
    EXPECT_EQ(awaited.code(), Code::kUnauthenticated) << awaited;
    EXPECT_NE(left.message().find(words), std::string::npos) << left;
  };
  ASSERT_EQ(mkdir(folder_.c_str(), 0700), 0);
  ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
  refused("other users");
  ASSERT_EQ(rmdir(folder_.c_str()), 0);
  std::filesystem::create_directory(home_ + "/elsewhere");
  ASSERT_EQ(symlink((home_ + "/elsewhere").c_str(), folder_.c_str()), 0);
  refused("link");
  std::filesystem::remove(folder_);
  std::ofstream(folder_) << "x";
  refused("no folder");
  std::filesystem::remove(folder_);
  if (geteuid() == 0) {
    ASSERT_EQ(mkdir(folder_.c_str(), 0700), 0);
    ASSERT_EQ(chown(folder_.c_str(), 12345, 12345), 0);
    refused("belongs to user 12345");
  }
}

TEST_F(HandoverTest, RefusesFilesThatOthersCouldHavePlanted) {
  auto letter = Handover::leave(folder_, "a", key_, "127.0.0.1:1");
  ASSERT_TRUE(letter.ok()) << letter.status();
  const std::filesystem::path file = std::filesystem::directory_iterator(folder_)->path();
  const auto refused = [&](std::string_view words) {
    const Status awaited = await_handover(folder_, "a", soon()).status();
    EXPECT_EQ(awaited.code(), Code::kUnauthenticated) << awaited;
    EXPECT_NE(awaited.message().find(words), std::string::npos) << awaited;
  };
  ASSERT_EQ(chmod(file.c_str(), 0644), 0);
  refused("other users");
  ASSERT_EQ(chmod(file.c_str(), 0600), 0);
  std::filesystem::create_hard_link(file, home_ + "/second");
  refused("several names");
  std::filesystem::remove(home_ + "/second");
  EXPECT_TRUE(await_handover(folder_, "a", soon()).ok());
  std::filesystem::rename(file, home_ + "/real");
  std::filesystem::create_symlink(home_ + "/real", file);
  refused("is a link");
}

}  // namespace
}  // namespace horo::rendezvous
