#include "horo/collective/selector.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "horo/collective/ranks_as_threads.h"

namespace horo::collective {
namespace {

std::string_view chosen(const Operation& operation, const Shape& shape, const Table& table = {}) {
  auto result = select(operation, shape, table);
  EXPECT_TRUE(result.ok()) << result.status();
  return (*result)->name;
}

Operation allreduce(uint64_t count, DType dtype = DType::kF32) {
  Operation operation = operation_of(Kind::kAllreduce, 2, 0, count, 0);
  operation.dtype = dtype;
  return operation;
}

Shape two_levels(int hosts, int per_host) {
  std::vector<int> host_of;
  for (int rank = 0; rank < hosts * per_host; ++rank) host_of.push_back(rank / per_host);
  return Shape(host_of);
}

TEST(Selector, TakesFewStepsForSmallAndFewBytesForLargeAllreduces) {
  Shape shape = Shape::on_one_host(8);
  EXPECT_EQ(chosen(allreduce(1), shape), "flood");
  EXPECT_EQ(chosen(allreduce(16 << 20), shape), "pairwise");
}

TEST(Selector, UsesTheHierarchyAcrossHosts) {
  EXPECT_EQ(chosen(allreduce(1), two_levels(4, 4)), "hierarchy-flood");
  EXPECT_EQ(chosen(allreduce(16 << 20), two_levels(4, 4)), "hierarchy");
}

TEST(Selector, HasAsManyLevelsAsTheUserWants) {
  const auto with = [](Forced::Levels levels, const Shape& shape) {
    Forced forced;
    forced.set_levels(Kind::kAllreduce, levels);
    return (*select(allreduce(1000), shape, {}, forced))->order;
  };
  EXPECT_EQ(with(Forced::Levels::kTwo, two_levels(4, 4)), Order::kHost);
  EXPECT_EQ(with(Forced::Levels::kFree, two_levels(4, 4)), Order::kHost);
  EXPECT_NE(with(Forced::Levels::kOne, two_levels(4, 4)), Order::kHost);
  EXPECT_NE(with(Forced::Levels::kTwo, Shape::on_one_host(4)), Order::kHost) << "there are no two levels";
}

TEST(Selector, FollowsAWayThatKeepsTheBitsAndNoOther) {
  for (const Shape& shape : {Shape::on_one_host(8), two_levels(2, 4), two_levels(8, 1)}) {
    for (bool deterministic : {true, false}) {
      Table table;
      table.deterministic = deterministic;
      const Order usual = (*select(allreduce(1000), shape, table))->order;
      const std::vector<Way> ways = other_ways(Kind::kAllreduce, shape, table, {});
      EXPECT_GE(ways.size(), 2U);
      std::set<uint8_t> possible;
      for (const Way& way : ways) {
        Operation operation = allreduce(1000);
        operation.way = way;
        possible.insert(way.algorithm);
        EXPECT_EQ(*select(operation, shape, table), &registry()[way.algorithm - 1u]);
        EXPECT_TRUE(!deterministic || (*select(operation, shape, table))->order == usual);
      }
      for (unsigned other = 1; other <= 255; ++other) {
        if (possible.contains(static_cast<uint8_t>(other))) continue;
        Operation operation = allreduce(1000);
        operation.way.algorithm = static_cast<uint8_t>(other);
        EXPECT_EQ(*select(operation, shape, table), *select(allreduce(1000), shape, table)) << other;
      }
    }
  }
  Forced forced;
  ASSERT_TRUE(forced.set(Kind::kAllreduce, "pairwise").ok());
  EXPECT_TRUE(other_ways(Kind::kAllreduce, Shape::on_one_host(8), {}, forced).empty()) << "the user has chosen";
}

TEST(Selector, BroadcastsSmallAlongATreeAndLargeOtherwise) {
  Shape shape = Shape::on_one_host(16);
  EXPECT_EQ(chosen(operation_of(Kind::kBroadcast, 16, 0, 1, 0), shape), "tree");
  EXPECT_NE(chosen(operation_of(Kind::kBroadcast, 16, 0, 16 << 20, 0), shape), "tree");
}

TEST(Selector, TheOrderOfAFloatSumDependsOnTheGroupAlone) {
  for (int ranks : {2, 3, 8, 32, 33, 100}) {
    for (int per_host : {1, 4}) {
      std::vector<int> host_of;
      for (int rank = 0; rank < ranks; ++rank) host_of.push_back(rank / per_host);
      std::set<Order> orders;
      for (uint64_t count = 1; count < uint64_t{1} << 40; count *= 3) {
        auto result = select(allreduce(count), Shape(host_of), {});
        ASSERT_TRUE(result.ok());
        orders.insert((*result)->order);
      }
      EXPECT_EQ(orders.size(), 1U) << ranks << " ranks, " << per_host << " per host";
      EXPECT_EQ(orders.count(Order::kSlice), 0U);
    }
  }
}

TEST(Selector, ChoosesFreelyWhereTheOrderDoesNotShow) {
  Table table;
  Shape shape = Shape::on_one_host(100);
  // Where only bytes count, the ring wins by the remainders of its slices: only its order keeps it out for floats.
  table.local_step = 0;
  table.message = 1;
  EXPECT_EQ(chosen(allreduce(1 << 20, DType::kF32), shape, table), "doubling");
  table.message = 0;
  table.reduced_byte = 0;
  EXPECT_EQ(chosen(allreduce(1 << 20, DType::kI32), shape, table), "ring");
  EXPECT_NE(chosen(allreduce(1 << 20, DType::kF32), shape, table), "ring");
  table.deterministic = false;
  EXPECT_EQ(chosen(allreduce(1 << 20, DType::kF32), shape, table), "ring");
}

TEST(Selector, DoesNotLookAtWhatOneMemberOfAnAlltoallSends) {
  Shape shape = Shape::on_one_host(4);
  EXPECT_EQ(chosen(operation_of(Kind::kAlltoall, 4, 0, 0, 0), shape),
            chosen(operation_of(Kind::kAlltoall, 4, 3, 1 << 20, 0), shape));
}

TEST(Selector, FindsAnAlgorithmForEveryOperationAndGroup) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (int kind = 0; kind <= static_cast<int>(Kind::kSendRecv); ++kind) {
      for (uint64_t count : {0, 1, 1000}) {
        for (const Shape& shape : {Shape::on_one_host(ranks), two_levels(ranks, 3)}) {
          auto operation = operation_of(static_cast<Kind>(kind), shape.ranks(), 0, count, 0);
          auto result = select(operation, shape, {});
          ASSERT_TRUE(result.ok()) << result.status();
          EXPECT_TRUE(build_plan(**result, operation, shape, 0, {}).ok());
        }
      }
    }
  }
}

TEST(Selector, AForcedAlgorithmIsTakenEvenAgainstTheOrder) {
  auto forced = Forced::parse("ring");
  ASSERT_TRUE(forced.ok()) << forced.status();
  EXPECT_EQ((*select(allreduce(1), Shape::on_one_host(4), {}, *forced))->name, "ring");
  EXPECT_EQ((*select(operation_of(Kind::kBarrier, 4, 0, 0, 0), Shape::on_one_host(4), {}, *forced))->name,
            "dissemination");
}

TEST(Selector, AnImpossibleWishNamesTheReasonAndThePossibleNames) {
  auto forced = Forced::parse("allreduce=hierarchy");
  ASSERT_TRUE(forced.ok()) << forced.status();
  auto result = select(allreduce(1), Shape::on_one_host(4), {}, *forced);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::kInvalidArgument);
  EXPECT_NE(result.status().message().find("needs several hosts"), std::string::npos) << result.status();
  EXPECT_NE(result.status().message().find("pairwise"), std::string::npos) << result.status();
}

TEST(Selector, UnknownNamesAreErrorsThatListTheKnownOnes) {
  auto wrong = Forced::parse("rnig");
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.status().message().find("ring"), std::string::npos) << wrong.status();
  EXPECT_NE(wrong.status().message().find("doubling"), std::string::npos) << wrong.status();
  EXPECT_FALSE(Forced::parse("allredcue=ring").ok());
  EXPECT_FALSE(Forced::parse("broadcast=ring").ok());
}

TEST(Table, SurvivesTheWire) {
  Table table;
  table.version = 9;
  table.deterministic = false;
  table.rank_order_limit = 77;
  table.remote_byte = 3e-10;
  auto decoded = decode_table(encode(table));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, table);
}

TEST(Table, RefusesOtherSizesAndImpossibleFigures) {
  auto bytes = encode(Table{});
  EXPECT_EQ(decode_table(std::span(bytes).first(69)).status().code(), Code::kIncompatible);
  Table negative;
  negative.message = -1;
  EXPECT_EQ(decode_table(encode(negative)).status().code(), Code::kCorrupt);
  Table infinite;
  infinite.local_byte = std::numeric_limits<double>::infinity();
  EXPECT_EQ(decode_table(encode(infinite)).status().code(), Code::kCorrupt);
  Table empty;
  empty.segment_bytes = 0;
  EXPECT_EQ(decode_table(encode(empty)).status().code(), Code::kCorrupt);
}

TEST(Operation, BadCallsAreRefusedWithTheReason) {
  Shape shape = Shape::on_one_host(3);
  auto code = [&](const Operation& operation) { return validate(operation, shape, 0).code(); };
  Operation operation = operation_of(Kind::kBroadcast, 3, 0, 1, 0);
  operation.root = 3;
  EXPECT_EQ(code(operation), Code::kInvalidArgument);
  operation = operation_of(Kind::kAllgather, 3, 0, 1, 0);
  operation.counts.pop_back();
  EXPECT_EQ(code(operation), Code::kInvalidArgument);
  operation = allreduce(1, DType::kF8E4M3);
  EXPECT_EQ(code(operation), Code::kInvalidArgument);
  operation = allreduce(uint64_t{1} << 62);
  EXPECT_EQ(code(operation), Code::kInvalidArgument);
  operation = allreduce(1, DType::kBool);
  operation.op = ReduceOp::kMax;
  operation.prescale = 0.5;
  EXPECT_EQ(code(operation), Code::kInvalidArgument);
  operation = operation_of(Kind::kAlltoall, 3, 0, 1, 0);
  operation.counts[0] += 1;
  EXPECT_EQ(code(operation), Code::kInvalidArgument);
}

}  // namespace
}  // namespace horo::collective
