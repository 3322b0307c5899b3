// Every algorithm, every operation, 1 to 9 ranks, with real data against a reference.
#include <gtest/gtest.h>

#include "horo/collective/ranks_as_threads.h"

namespace horo::collective {
namespace {

/// Small integers: their sums are exact in f32, whatever the order.
float value(int rank, uint64_t element) {
  return static_cast<float>((static_cast<uint64_t>(rank) * 31 + element * 7) % 17) - 8.0F;
}

Bytes input_of(const Operation& operation, int rank) {
  Bytes bytes(input_count_of(operation, rank) * sizeof(float));
  for (uint64_t i = 0; i < bytes.size() / sizeof(float); ++i) {
    float element = value(rank, i);
    std::memcpy(bytes.data() + i * sizeof(float), &element, sizeof(float));
  }
  return bytes;
}

Bytes expected_of(const Operation& operation, int ranks, int rank, uint64_t count) {
  Bytes bytes;
  for (const Origin& origin : origins_of(operation, ranks, rank, count)) {
    float sum = 0;
    for (int from : origin.ranks) sum += value(from, origin.element);
    auto* first = reinterpret_cast<const std::byte*>(&sum);
    bytes.insert(bytes.end(), first, first + sizeof(float));
  }
  return bytes;
}

Shape shape_of(int ranks, int per_host) {
  std::vector<int> hosts;
  for (int rank = 0; rank < ranks; ++rank) hosts.push_back(rank / per_host);
  return Shape(hosts);
}

struct Case {
  const Algorithm* algorithm;
  Kind kind;
  uint64_t count;
  int root;
  Table table;
  Shape shape;
};

std::vector<Case> all_cases(int ranks) {
  std::vector<Case> cases;
  Table small;
  small.segment_bytes = 24;
  for (const Algorithm& algorithm : registry()) {
    for (int kind = 0; kind <= static_cast<int>(Kind::kSendRecv); ++kind) {
      for (uint64_t count : {0, 1, 5, 64, 333}) {
        for (const Table& table : {small, Table{}}) {
          for (int per_host : {1, 2, 3, ranks}) {
            Shape shape = shape_of(ranks, per_host);
            int root = static_cast<int>(cases.size()) % ranks;
            if (!algorithm.refusal(operation_of(static_cast<Kind>(kind), ranks, 0, count, root), shape).empty())
              continue;
            cases.push_back({&algorithm, static_cast<Kind>(kind), count, root, table, shape});
          }
        }
      }
    }
  }
  return cases;
}

class Conformance : public testing::TestWithParam<int> {};

TEST_P(Conformance, EveryAlgorithmGivesTheReferenceResultAndLeavesInputsAlone) {
  int ranks = GetParam();
  transport::InprocFabric fabric(ranks);
  auto cases = all_cases(ranks);
  ASSERT_FALSE(cases.empty());
  std::atomic<int> failures{0};
  run_ranks(ranks, [&](int rank) {
    Member member(fabric.mesh(rank));
    for (const Case& one : cases) {
      auto operation = operation_of(one.kind, ranks, rank, one.count, one.root);
      Bytes input = input_of(operation, rank);
      const bool early = one.table.segment_bytes < Table{}.segment_bytes;
      auto output = member.run(*one.algorithm, operation, one.shape, one.table, input, early);
      bool right = output.ok() && *output == expected_of(operation, ranks, rank, one.count);
      if ((!right || input != input_of(operation, rank)) && failures++ < 5) {
        ADD_FAILURE() << one.algorithm->name << " " << transport::name(one.kind) << " of " << one.count << " on rank "
                      << rank << " of " << ranks << ", root " << one.root << ", segments of " << one.table.segment_bytes
                      << " bytes, " << one.shape.hosts().size() << " hosts: " << output.status();
      }
      if (!output.ok()) return fabric.drop(rank);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Conformance, testing::Range(1, 10));

TEST(Collective, InPlaceAllreduceAndBroadcastWork) {
  constexpr int kRanks = 3;
  transport::InprocFabric fabric(kRanks);
  Shape shape = Shape::on_one_host(kRanks);
  run_ranks(kRanks, [&](int rank) {
    Member member(fabric.mesh(rank));
    for (const Algorithm& algorithm : registry()) {
      for (Kind kind : {Kind::kAllreduce, Kind::kBroadcast}) {
        auto operation = operation_of(kind, kRanks, rank, 50, 1);
        if (!algorithm.refusal(operation, shape).empty()) continue;
        Bytes memory = input_of(operation, rank);
        memory.resize(50 * sizeof(float));
        ASSERT_TRUE(member.run_on(algorithm, operation, shape, Table{}, memory.data(), memory.data()).ok());
        EXPECT_EQ(memory, expected_of(operation, kRanks, rank, 50)) << algorithm.name << " " << transport::name(kind);
      }
    }
  });
}

TEST(Collective, OutputIsUntouchedWhenAPeerIsLost) {
  constexpr int kRanks = 4;
  transport::InprocFabric fabric(kRanks);
  Shape shape = Shape::on_one_host(kRanks);
  const Algorithm& pairwise = *find_algorithm("pairwise");
  run_ranks(kRanks, [&](int rank) {
    if (rank == 2) return fabric.drop(2);
    Member member(fabric.mesh(rank));
    auto operation = operation_of(Kind::kAllreduce, kRanks, rank, 1000, 0);
    Bytes memory = input_of(operation, rank);
    Status status = member.run_on(pairwise, operation, shape, Table{}, memory.data(), memory.data());
    EXPECT_EQ(status.code(), Code::kPeerLost) << status;
    EXPECT_EQ(status.lost(), std::vector<int>{2});
    EXPECT_EQ(memory, input_of(operation, rank));
  });
}

TEST(Collective, BytesSentAreCountedPerPeer) {
  transport::InprocFabric fabric(2);
  run_ranks(2, [&](int rank) {
    Member member(fabric.mesh(rank));
    auto operation = operation_of(Kind::kAllreduce, 2, rank, 100, 0);
    ASSERT_TRUE(
        member.run(*find_algorithm("pairwise"), operation, Shape::on_one_host(2), Table{}, input_of(operation, rank))
            .ok());
    EXPECT_EQ(member.executor().sent_bytes()[static_cast<size_t>(1 - rank)], 400U);
    EXPECT_EQ(member.executor().sent_bytes()[static_cast<size_t>(rank)], 0U);
  });
}

}  // namespace
}  // namespace horo::collective
