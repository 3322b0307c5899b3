#include "horo/group/levels.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace horo::group {
namespace {

using collective::Kind;
using collective::Operation;
using collective::Shape;

TEST(Levels, AllMembersOfEqualHostsDriveALane) {
  const Levels levels(Shape({0, 0, 1, 1}), 3);
  EXPECT_EQ(levels.lanes, 2);
  EXPECT_EQ(levels.host, 1u);
  EXPECT_EQ(levels.place, 1);
  EXPECT_TRUE(levels.drives());
  EXPECT_EQ(levels.driver(0, levels.place), 1);
}

TEST(Levels, TheSmallestHostSaysHowManyLanesThereAre) {
  EXPECT_EQ(Levels(Shape({0, 0, 0, 1}), 0).lanes, 1);
  EXPECT_EQ(Levels(Shape({0, 0, 0, 1, 1}), 0).lanes, 2);
  EXPECT_FALSE(Levels(Shape({0, 0, 0, 1}), 2).drives());
}

TEST(Levels, SmallOperationsUseOneLane) {
  const Levels levels(Shape({0, 0, 1, 1}), 0);
  EXPECT_EQ(levels.lanes_for(1000), 1);
  EXPECT_EQ(levels.lanes_for(1 << 20), 2);
}

TEST(Levels, KnowWhetherHostsAreRuns) {
  EXPECT_TRUE(Levels(Shape({0, 0, 1, 1}), 0).hosts_are_runs());
  EXPECT_FALSE(Levels(Shape({0, 1, 0, 1}), 0).hosts_are_runs());
}

Shape random_shape(std::mt19937_64& random) {
  std::vector<int> host_of(2 + random() % 8);
  for (int& host : host_of) host = static_cast<int>(random() % 3);
  return Shape(host_of);
}

Operation random_gather(std::mt19937_64& random, const Shape& shape) {
  Operation operation;
  operation.kind = Kind::kAllgather;
  operation.dtype = DType::kF32;
  for (int member = 0; member < shape.ranks(); ++member) operation.counts.push_back(random() % 50);
  return operation;
}

TEST(Crossings, BringEveryBlockOnceAndApartFromTheOthers) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int turn = 0; turn < 500; ++turn) {
    const Shape shape = random_shape(random);
    const Operation operation = random_gather(random, shape);
    const Levels levels(shape, 0);
    for (size_t to = 0; to < levels.hosts(); ++to) {
      for (Blocks which : {Blocks::kOfOthers, Blocks::kOfItsOwn}) {
        std::map<int, int> seen;
        std::map<int, uint64_t> end;  // Of each lane's slot.
        for (int lane = 0; which == Blocks::kOfOthers && lane < levels.lanes; ++lane) {
          end[lane] = operation.counts[static_cast<size_t>(levels.driver(to, lane))] * 4;
        }
        for (const Crossing& one : crossings(levels, operation, to, which)) {
          EXPECT_EQ(shape.host_of(one.member) == to, which == Blocks::kOfItsOwn);
          EXPECT_EQ(one.lane, levels.lane_of(one.member));
          EXPECT_EQ(one.offset, end[one.lane]);
          EXPECT_EQ(one.bytes, operation.counts[static_cast<size_t>(one.member)] * 4);
          end[one.lane] += one.bytes;
          EXPECT_LE(end[one.lane], slot_bytes(levels, operation));
          ++seen[one.member];
        }
        const size_t there = shape.hosts()[to].size();
        EXPECT_EQ(seen.size(), which == Blocks::kOfItsOwn ? there : static_cast<size_t>(shape.ranks()) - there);
      }
    }
  }
}

TEST(TwoLevels, RefuseByKindAndShapeAndNeverBySize) {
  Operation operation;
  operation.kind = Kind::kReduceScatter;
  const Levels runs(Shape({0, 0, 1, 1}), 0);
  const Levels mixed(Shape({0, 1, 0, 1}), 0);
  EXPECT_EQ(two_level_refusal(runs, operation), "");
  EXPECT_NE(two_level_refusal(mixed, operation), "");
  operation.kind = Kind::kAllreduce;
  EXPECT_EQ(two_level_refusal(mixed, operation), "");
  operation.count = uint64_t{1} << 40;
  EXPECT_EQ(two_level_refusal(mixed, operation), "");
  operation.kind = Kind::kAlltoall;
  EXPECT_NE(two_level_refusal(runs, operation), "");
}

}  // namespace
}  // namespace horo::group
