#include "horo/rendezvous/door.h"

#include <gtest/gtest.h>

#include <thread>

#include "horo/rendezvous/memory_store.h"

namespace horo::rendezvous {
namespace {

Deadline soon() { return Deadline::after_seconds(10); }
Deadline at_once() { return Deadline::after(std::chrono::milliseconds(30)); }

class DoorTest : public ::testing::Test {
 protected:
  MemoryStore store_;
  Door door_{store_, "job"};
};

TEST_F(DoorTest, WhoKnocksIsSeenAndAdmittedOnce) {
  const Newcomer ninth{9, 1}, tenth{10, 1};
  ASSERT_TRUE(door_.knock(tenth, soon()).ok());
  ASSERT_TRUE(door_.knock(ninth, soon()).ok());
  auto changes = door_.look(soon());
  ASSERT_TRUE(changes.ok()) << changes.status();
  EXPECT_EQ(changes->newcomers, (std::vector<Newcomer>{ninth, tenth}));
  const Admission admission{"1", 2, 3};
  EXPECT_EQ(door_.await_admission(ninth, at_once()).status().code(), Code::kTimeout);
  ASSERT_TRUE(door_.admit(ninth, admission, soon()).ok());
  auto got = door_.await_admission(ninth, soon());
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(*got, admission);
  changes = door_.look(soon());
  ASSERT_TRUE(changes.ok());
  EXPECT_EQ(changes->newcomers, (std::vector<Newcomer>{tenth}));
  // An admission of an earlier time is not taken for one of this time.
  ASSERT_TRUE(door_.knock({9, 2}, soon()).ok());
  EXPECT_EQ(door_.await_admission({9, 2}, at_once()).status().code(), Code::kTimeout);
  door_.turn_away({9, 2}, soon());
  EXPECT_EQ(door_.look(soon())->newcomers, (std::vector<Newcomer>{tenth}));
}

TEST_F(DoorTest, EveryKnockAndEveryRequestToLeaveIsNews) {
  EXPECT_EQ(door_.await_news(1, at_once()).code(), Code::kTimeout);
  ASSERT_TRUE(door_.knock({4, 1}, soon()).ok());
  ASSERT_TRUE(door_.ask_to_leave(1, "its host is gone", soon()).ok());
  EXPECT_TRUE(door_.await_news(1, soon()).ok());
  EXPECT_TRUE(door_.await_news(2, soon()).ok());
  EXPECT_EQ(door_.await_news(3, at_once()).code(), Code::kTimeout);
  EXPECT_EQ(door_.look(soon())->leavers, (std::vector<int>{1}));
}

TEST_F(DoorTest, WhoseSlotIsGoneIsRefusedWhetherItWaitsOrComesLater) {
  ASSERT_TRUE(door_.knock({4, 1}, soon()).ok());
  ASSERT_TRUE(door_.knock({41, 1}, soon()).ok());
  ASSERT_TRUE(door_.ask_to_leave(4, "its host is gone", soon()).ok());
  EXPECT_EQ(door_.await_admission({4, 1}, soon()).status().code(), Code::kStopped);
  ASSERT_TRUE(door_.ask_to_leave(5, "its host is gone", soon()).ok());
  ASSERT_TRUE(door_.knock({5, 3}, soon()).ok());
  EXPECT_EQ(door_.await_admission({5, 3}, soon()).status().code(), Code::kStopped);
  EXPECT_EQ(door_.look(soon())->newcomers, (std::vector<Newcomer>{{41, 1}}));
  // Whoever had seen it at the door before cannot let it in any more.
  EXPECT_EQ(door_.admit({4, 1}, {"7", 1, 2}, soon()).code(), Code::kPeerLost);
  EXPECT_EQ(door_.await_admission({4, 1}, soon()).status().code(), Code::kStopped);
  EXPECT_EQ(*door_.admitted(soon()), std::set<int>{});
  door_.newcomer_ended(4, soon());
  EXPECT_EQ(*door_.admitted(soon()), std::set<int>{});
}

TEST_F(DoorTest, WhoWasLetInBeforeItsSlotWentLeavesAsARank) {
  ASSERT_TRUE(door_.knock({4, 1}, soon()).ok());
  ASSERT_TRUE(door_.admit({4, 1}, {"7", 1, 2}, soon()).ok());
  ASSERT_TRUE(door_.ask_to_leave(4, "its host is gone", soon()).ok());
  EXPECT_EQ(door_.await_admission({4, 1}, soon())->generation, "7");
  EXPECT_EQ(*door_.admitted(soon()), std::set<int>{4});
  EXPECT_EQ(door_.look(soon())->leavers, (std::vector<int>{4}));
}

TEST_F(DoorTest, NobodyIsLetInTwice) {
  ASSERT_TRUE(door_.knock({4, 1}, soon()).ok());
  ASSERT_TRUE(door_.admit({4, 1}, {"7", 1, 2}, soon()).ok());
  EXPECT_EQ(door_.admit({4, 1}, {"8", 1, 2}, soon()).code(), Code::kPeerLost) << "by the next rank 0, say";
  EXPECT_EQ(door_.await_admission({4, 1}, soon())->generation, "7");
}

TEST_F(DoorTest, AnAdmissionAndARequestToLeaveAtOnceHaveOneOutcome) {
  for (int round = 1; round <= 200; ++round) {
    const Newcomer who{round, 1};
    ASSERT_TRUE(door_.knock(who, soon()).ok());
    Status admitted;
    {
      const std::jthread job([&] { admitted = door_.admit(who, {"7", 1, 2}, soon()); });
      ASSERT_TRUE(door_.ask_to_leave(round, "its host is gone", soon()).ok());
    }
    EXPECT_EQ(door_.await_admission(who, soon()).ok(), admitted.ok()) << admitted;
    EXPECT_EQ(door_.admitted(soon())->contains(round), admitted.ok());
    EXPECT_TRUE(door_.look(soon())->newcomers.empty());
  }
}

TEST_F(DoorTest, AGenerationThatOneGaveUpIsOverForAllWhoWaitForIt) {
  const auto first = door_.begin_generation(soon()), second = door_.begin_generation(soon());
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(*first, *second);
  EXPECT_TRUE(door_.check(*first, soon()).ok());
  door_.give_up(*first, "rank 2 is gone", soon());
  door_.give_up(*first, "somebody else said so later", soon());
  const Status over = door_.check(*first, soon());
  EXPECT_EQ(over.code(), Code::kPeerLost);
  EXPECT_NE(over.message().find("rank 2 is gone"), std::string::npos) << over;
  EXPECT_TRUE(door_.check(*second, soon()).ok());
}

TEST_F(DoorTest, ANewcomerThatEndedIsWaitedForNoMore) {
  ASSERT_TRUE(door_.knock({4, 1}, soon()).ok());
  ASSERT_TRUE(door_.knock({41, 1}, soon()).ok());
  ASSERT_TRUE(door_.admit({4, 1}, {"7", 1, 2}, soon()).ok());
  ASSERT_TRUE(door_.knock({4, 2}, soon()).ok());
  door_.newcomer_ended(4, soon());
  EXPECT_EQ(door_.look(soon())->newcomers, (std::vector<Newcomer>{{41, 1}}));
  EXPECT_EQ(door_.check("7", soon()).code(), Code::kPeerLost);
}

TEST_F(DoorTest, WhoWasLetInAndDoesNotKnockAgainIsAdmitted) {
  for (int seat : {4, 5, 41}) ASSERT_TRUE(door_.knock({seat, 1}, soon()).ok());
  EXPECT_EQ(*door_.admitted(soon()), std::set<int>{});
  ASSERT_TRUE(door_.admit({4, 1}, {"7", 1, 3}, soon()).ok());
  ASSERT_TRUE(door_.admit({41, 1}, {"7", 2, 3}, soon()).ok());
  EXPECT_EQ(*door_.admitted(soon()), (std::set<int>{4, 41}));
  ASSERT_TRUE(door_.knock({4, 2}, soon()).ok());
  EXPECT_EQ(*door_.admitted(soon()), std::set<int>{41});
  door_.newcomer_ended(41, soon());
  EXPECT_EQ(*door_.admitted(soon()), std::set<int>{41});
}

TEST_F(DoorTest, NonsenseInTheStoreIsNobody) {
  const auto* byte = reinterpret_cast<const std::byte*>("x");
  ASSERT_TRUE(store_.set("job/elastic/door/abc", {byte, 1}, soon()).ok());
  ASSERT_TRUE(store_.set("job/elastic/door/5", {byte, 1}, soon()).ok());
  ASSERT_TRUE(store_.set("job/elastic/leave/-", {byte, 1}, soon()).ok());
  ASSERT_TRUE(store_.set("job/elastic/admit/5/1", {byte, 1}, soon()).ok());
  ASSERT_TRUE(store_.set("job/elastic/admit/x/1", {byte, 1}, soon()).ok());
  EXPECT_TRUE(door_.look(soon())->newcomers.empty());
  EXPECT_TRUE(door_.look(soon())->leavers.empty());
  EXPECT_EQ(*door_.admitted(soon()), std::set<int>{5});
  EXPECT_EQ(door_.await_admission({5, 1}, soon()).status().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace horo::rendezvous
