// A network that is cut in two: no operation succeeds in two memberships, neither side believes the other afterwards,
// and nobody hangs. What is promised without a quorum stands in docs/failure.md.
#include <gtest/gtest.h>

#include <cstdio>
#include <sstream>

#include "tests/job.h"
#include "tests/two_hosts.h"

#include "horo/base/text.h"

namespace horo::test {
namespace {

using collective::Kind;
using collective::Operation;

constexpr int kRanks = 4;
constexpr uint64_t kCount = 20'000;
int side_of(int rank) { return rank / 2; }

/// A sum of 16^rank over a group: each digit of the result tells of one member. Empty, or what is wrong.
struct Sum {
  Status status;
  uint64_t members = 0;  ///< The digits.
  bool uniform = true;   ///< The same in every element; untouched after a failure.
};

Sum sum_of(group::Group& group, int rank, Deadline deadline = Deadline::never()) {
  Operation operation;
  operation.kind = Kind::kAllreduce;
  operation.dtype = DType::kU64;
  operation.count = kCount;
  const uint64_t mine = uint64_t{1} << (4 * rank);
  std::vector<uint64_t> values(kCount, mine);
  auto* bytes = reinterpret_cast<std::byte*>(values.data());
  Sum sum{.status = group.run(operation, bytes, bytes, deadline)};
  sum.members = values.front();
  const uint64_t expected = sum.status.ok() ? sum.members : mine;
  sum.uniform = values == std::vector<uint64_t>(kCount, expected);
  return sum;
}

/// Says how each stage went: "failed NUMBER CODE", "side MEMBERS EPOCH", "after CODE".
int live_through_it(group::Engine& engine, Hold& mended) {
  mended.take_part();
  uint64_t succeeded = 0;
  while (true) {
    const Sum sum = sum_of(engine.world(), engine.rank());
    if (!sum.uniform) return 3;
    if (!sum.status.ok()) {
      tell(text("failed ", sum.status.operation().value_or(0), " ", code_name(sum.status.code()), " ",
                sum.status.to_string(), "\n"));
      break;
    }
    if (sum.members != 0x1111) return 4;  // There is no smaller success.
    if (++succeeded == 10) tell("ready\n");
  }
  // Each side goes on alone, as a program without a quorum may.
  const std::vector<int> rest = engine.members();
  auto group = engine.create_group(rest, Deadline::after_seconds(20));
  if (!group.ok()) {
    tell(text("side none 0 ", group.status().to_string(), "\n"));
  } else {
    const Sum sum = sum_of(**group, engine.rank(), Deadline::after_seconds(20));
    if (!sum.status.ok() || !sum.uniform) return 5;
    tell(text("side ", std::hex, sum.members, std::dec, " ", engine.epoch(), "\n"));
  }
  if (!mended.wait(Deadline::after_seconds(60))) return 6;
  // The cable is back. Whatever the other side still sends, the old group stays over, and the sides stay apart.
  for (int turn = 0; turn < 3; ++turn) {
    const Sum sum = sum_of(engine.world(), engine.rank(), Deadline::after_seconds(20));
    if (sum.status.ok() || !sum.uniform) return 7;
  }
  if (group.ok()) {
    const Sum sum = sum_of(**group, engine.rank(), Deadline::after_seconds(20));
    if (!sum.uniform) return 8;
    // Who is told by the other side that it was evicted stops; who goes on does so with its own side alone.
    tell(text("after ", sum.status.ok() ? text("members ", std::hex, sum.members) : sum.status.to_string(), "\n"));
  }
  return 0;
}

struct Words {
  uint64_t operation = 0;
  std::string code, side;
};

TEST(Partition, NoOperationSucceedsInTwoMembershipsAndTheSidesStayApart) {
  TwoHosts hosts;
  if (!hosts.made()) GTEST_SKIP() << "network namespaces cannot be made here (needs root and the ip program)";
  JobOptions options{.ranks = kRanks, .environment = {{"HORO_FREEZE_TIMEOUT", "1s"}, {"HORO_TIMEOUT", "10s"}}};
  options.environment["HORO_LOG_LEVEL"] = "off";
  options.enter = [&hosts](int rank) { return hosts.enter(side_of(rank)); };
  options.store_at = "10.77.0.1:0";
  Hold mended;
  auto started = Job::start(options, [&](group::Engine& engine) { return live_through_it(engine, mended); });
  ASSERT_TRUE(started.ok()) << started.status();
  Job& job = **started;
  for (int rank = 0; rank < kRanks; ++rank) ASSERT_TRUE(job.next_line(rank, Deadline::after_seconds(20)).ok());
  const Time cut = Clock::now();
  ASSERT_TRUE(hosts.cut());
  std::vector<Words> said(kRanks);
  for (size_t rank = 0; rank < kRanks; ++rank) {
    auto failed = job.next_line(static_cast<int>(rank), Deadline::after_seconds(20));
    ASSERT_TRUE(failed.ok()) << failed.status();
    std::istringstream words(*failed);
    std::string verdict;
    ASSERT_TRUE(words >> verdict >> said[rank].operation >> said[rank].code && verdict == "failed") << *failed;
    EXPECT_TRUE(said[rank].code == "peer-lost" || said[rank].code == "evicted") << *failed;
    auto side = job.next_line(static_cast<int>(rank), Deadline::after_seconds(30));
    ASSERT_TRUE(side.ok()) << side.status();
    ASSERT_EQ(side->rfind("side ", 0), 0u) << *side;
    said[rank].side = side->substr(5);
  }
  std::printf("  both sides went on alone %.1f s after the cut\n",
              std::chrono::duration<double>(Clock::now() - cut).count());
  // On one side all agree, about the operation and about who is left.
  EXPECT_EQ(said[0].operation, said[1].operation);
  EXPECT_EQ(said[2].operation, said[3].operation);
  EXPECT_EQ(said[0].side, said[1].side);
  EXPECT_EQ(said[2].side, said[3].side);
  EXPECT_EQ(said[0].side, "11 2") << "ranks 0 and 1, in the epoch after two losses";
  EXPECT_EQ(said[2].side, "1100 2") << "ranks 2 and 3, in the epoch after two losses";
  // Between the sides, the operation under way may have succeeded, with everybody's share, on one of them alone.
  const auto [first, last] = std::minmax(said[0].operation, said[2].operation);
  EXPECT_LE(last - first, 1u) << "more than the operation under way differs between the sides";
  ASSERT_TRUE(hosts.mend());
  mended.let_go();
  auto codes = job.wait(Deadline::after_seconds(60));
  ASSERT_TRUE(codes.ok()) << codes.status();
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string after = job.told(rank);
    EXPECT_EQ((*codes)[static_cast<size_t>(rank)], 0) << "rank " << rank << ": " << after;
    const char* own = side_of(rank) == 0 ? "members 11\n" : "members 1100\n";
    EXPECT_TRUE(after.find(own) != std::string::npos || after.find("evicted") != std::string::npos) << after;
  }
}

}  // namespace
}  // namespace horo::test
