// Blocks that are read where the givers' callers keep them: results, and givers that are not what they were.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <latch>
#include <random>
#include <thread>
#include <vector>

#include "horo/base/text.h"
#include "horo/collective/direct/caller_testing.h"

namespace horo::collective::direct {
namespace {

Kind kind_of(int turn) { return turn % 2 == 0 ? Kind::kAlltoall : Kind::kScatter; }

class DirectReadsBy : public testing::TestWithParam<int> {};

TEST_P(DirectReadsBy, GiveTheReferenceResultAndLeaveInputsAlone) {
  run_collectives(GetParam(), std::array{Kind::kAlltoall, Kind::kAllgather, Kind::kScatter}, Readers::kAll);
}

TEST_P(DirectReadsBy, WhatCallersKeepMayBeOverwrittenAsSoonAsTheCallReturns) {
  const int ranks = GetParam();
  Fabric fabric(ranks, kSegment);
  run_ranks(ranks, [&](int rank) {
    Caller caller(fabric, rank, Rings::kNear, Readers::kAll);
    for (int turn = 0; turn < 50; ++turn) {
      Operation operation = operation_of(kind_of(turn), ranks, rank, 3000, 0);
      std::vector<float> input = input_of(operation, rank);
      std::vector<float> output(operation.result_count(rank));
      ASSERT_TRUE(caller.call(operation, bytes_of(input), bytes_of(output)).ok());
      std::fill(input.begin(), input.end(), -99.0F);
      ASSERT_EQ(output, expected_of(operation, ranks, rank, 3000)) << "turn " << turn;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, DirectReadsBy, testing::Range(1, 10));

// The killed member's thread goes on as one would that was stopped for a while: it reads what the others use again.
TEST(DirectReads, SucceedForAllOrForNoneWhoeverIsCutOffInTheMiddle) {
  constexpr uint64_t kCount = 50000;
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(text("seed ", seed));
  std::mt19937 random(seed);
  int succeeded = 0;
  for (int turn = 0; turn < 100; ++turn) {
    const Kind kind = kind_of(turn);
    const int ranks = kind == Kind::kScatter ? 2 : 3;
    Fabric fabric(ranks, kSegment);
    const auto victim = static_cast<int>(random() % static_cast<unsigned>(ranks));
    const auto after = std::chrono::microseconds(random() % (kind == Kind::kScatter ? 40 : 150));
    std::latch begun(ranks + 1);
    std::thread killer([&] {
      begun.arrive_and_wait();
      const Time limit = Clock::now() + after;
      while (Clock::now() < limit) std::this_thread::yield();
      fabric.kill(victim);
    });
    std::vector<Status> ends(static_cast<size_t>(ranks));
    run_ranks(ranks, [&](int rank) {
      Caller caller(fabric, rank, Rings::kNear, Readers::kAll);
      const Operation operation = operation_of(kind, ranks, rank, kCount, 0);
      std::vector<float> input = input_of(operation, rank);
      std::vector<float> output(operation.result_count(rank));
      begun.arrive_and_wait();
      const Status status = caller.call(operation, bytes_of(input), bytes_of(output));
      std::fill(input.begin(), input.end(), -99.0F);
      if (status.ok()) {
        EXPECT_EQ(output, expected_of(operation, ranks, rank, kCount));
      }
      ends[static_cast<size_t>(rank)] = status;
    });
    killer.join();
    succeeded += ends[0].ok() ? 1 : 0;
    for (const Status& end : ends) EXPECT_EQ(end.ok(), ends[0].ok()) << "turn " << turn << ": " << ends[0] << end;
  }
  std::printf("  %d of 100 succeeded\n", succeeded);
}

/// Members of which the first finds somebody else where the second was.
class DirectReadsOfAStranger : public testing::Test {
 protected:
  static constexpr int kRanks = 3;

  void SetUp() override {
    if (fabric_.space(0, kStaging).processes.empty()) GTEST_SKIP() << "no process may read another here";
  }

  /// An alltoall on all members; rank 0 gives up after `limit`. Inputs stay as they are.
  std::array<Status, kRanks> alltoall(std::chrono::milliseconds limit) {
    std::array<Status, kRanks> ends;
    run_ranks(kRanks, [&](int rank) {
      Space space = fabric_.space(rank, kStaging);
      if (rank == 0) space.processes[1] = &stranger_;
      Caller caller(std::move(space), small_thresholds(rank, Rings::kNear, Readers::kAll));
      const Operation operation = operation_of(Kind::kAlltoall, kRanks, rank, 5000, 0);
      std::vector<float> input = input_of(operation, rank);
      std::vector<float> output(operation.result_count(rank));
      const Deadline deadline = Deadline::after(rank == 0 ? limit : std::chrono::seconds(60));
      ends[static_cast<size_t>(rank)] = caller.call(operation, bytes_of(input), bytes_of(output), deadline);
      EXPECT_EQ(input, input_of(operation, rank));
    });
    return ends;
  }

  Fabric fabric_{kRanks, kSegment};

 private:
  const transport::Process::Proof found_{};
  const transport::Process stranger_{getpid(), reinterpret_cast<uintptr_t>(found_.data()), {std::byte{1}}};
};

TEST_F(DirectReadsOfAStranger, FailOnAllAndNameAMemberThatIsAlive) {
  const auto ends = alltoall(std::chrono::milliseconds(200));
  EXPECT_EQ(ends[0].code(), Code::kCorrupt) << ends[0];
  EXPECT_NE(ends[0].message().find("rank 1"), std::string::npos) << ends[0];
  EXPECT_NE(ends[0].message().find("HORO_READ_PEERS=0"), std::string::npos) << ends[0];
  for (int rank = 1; rank < kRanks; ++rank) EXPECT_EQ(ends[static_cast<size_t>(rank)].code(), Code::kStopped);
  EXPECT_TRUE(fabric_.space(0, kStaging).page.evicted().empty());
}

// The dead one has read everything, which is no help to who has not read it.
TEST_F(DirectReadsOfAStranger, SayWhatTheOthersSayOfAMemberThatIsDead) {
  constexpr uint64_t kMeeting = 2;  // After that for the counts.
  std::thread killer([&] {
    transport::Word& read = fabric_.space(1, kStaging).page[1].copied.word;
    while (read.read().count() < transport::progress_count(kMeeting, transport::kMaxSteps)) std::this_thread::yield();
    fabric_.kill(1);
  });
  for (const Status& end : alltoall(std::chrono::seconds(60))) EXPECT_EQ(end.code(), Code::kStopped) << end;
  killer.join();
  EXPECT_EQ(fabric_.space(0, kStaging).page.evicted(), std::vector<int>{1});
}

}  // namespace
}  // namespace horo::collective::direct
