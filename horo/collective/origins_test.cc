#include <gtest/gtest.h>

#include <numeric>

#include "horo/collective/ranks_as_threads.h"
#include "horo/collective/stage.h"

namespace horo::collective {

namespace {

std::vector<int> everybody(int ranks) {
  std::vector<int> all(static_cast<size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

void add(std::vector<Origin>& origins, const std::vector<int>& ranks, Run run) {
  for (uint64_t i = 0; i < run.count; ++i) origins.push_back({ranks, run.offset + i});
}

/// Where in the input of `from` the block for `rank` begins.
uint64_t alltoall_offset(int from, int rank, uint64_t count) {
  uint64_t offset = 0;
  for (int peer = 0; peer < rank; ++peer) offset += alltoall_count(from, peer, count);
  return offset;
}

}  // namespace

/// The definition of every operation, element by element.
std::vector<Origin> origins_of(const Operation& operation, int ranks, int rank, uint64_t count) {
  std::vector<Origin> origins;
  auto runs = runs_of(operation.counts);
  auto self = static_cast<size_t>(rank);
  bool at_root = rank == operation.root;
  switch (operation.kind) {
    case Kind::kAllreduce:
      add(origins, everybody(ranks), {0, count});
      break;
    case Kind::kReduce:
      if (at_root) add(origins, everybody(ranks), {0, count});
      break;
    case Kind::kReduceScatter:
      add(origins, everybody(ranks), runs[self]);
      break;
    case Kind::kAllgather:
    case Kind::kGather:
      if (operation.kind == Kind::kGather && !at_root) break;
      for (int from = 0; from < ranks; ++from) add(origins, {from}, {0, runs[static_cast<size_t>(from)].count});
      break;
    case Kind::kScatter:
      add(origins, {operation.root}, runs[self]);
      break;
    case Kind::kBroadcast:
      add(origins, {operation.root}, {0, count});
      break;
    case Kind::kSendRecv:
      if (rank == operation.target) add(origins, {operation.root}, {0, count});
      break;
    case Kind::kAlltoall:
      for (int from = 0; from < ranks; ++from) {
        add(origins, {from}, {alltoall_offset(from, rank, count), alltoall_count(from, rank, count)});
      }
      break;
    case Kind::kBarrier:
    case Kind::kRefused:
      break;
  }
  return origins;
}

TEST(Origins, HaveAsManyElementsAsTheResult) {
  for (int kind = 0; kind <= static_cast<int>(Kind::kSendRecv); ++kind) {
    for (int rank = 0; rank < 5; ++rank) {
      auto operation = operation_of(static_cast<Kind>(kind), 5, rank, 7, 3);
      EXPECT_EQ(origins_of(operation, 5, rank, 7).size(), operation.result_count(rank)) << "kind " << kind;
    }
  }
}

}  // namespace horo::collective
