// For tests: runs a function as every rank of a group of threads, and operations through plan, executor and delivery.
#pragma once

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "horo/collective/algorithm.h"
#include "horo/collective/executor.h"
#include "horo/transport/inproc/mesh.h"

namespace horo::collective {

/// Runs body(rank) on `ranks` threads and waits for all.
template <class Body>
void run_ranks(int ranks, Body body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([&body, rank] { body(rank); });
  for (auto& thread : threads) thread.join();
}

using Bytes = std::vector<std::byte>;

/// One member that runs operations one after the other.
class Member {
 public:
  explicit Member(transport::Mesh& mesh) : mesh_(mesh), executor_(mesh) {}

  /// Runs `operation` out of place and returns the output.
  Result<Bytes> run(const Algorithm& algorithm, const Operation& operation, const Shape& shape, const Table& table,
                    const Bytes& input, bool early = false) {
    Bytes output(operation.result_count(mesh_.rank()) * size_of(operation.dtype), std::byte{0xEE});
    HORO_TRY(run_on(algorithm, operation, shape, table, input.data(), output.data(), early));
    return output;
  }

  /// Runs `operation` on memory of the caller, which may be the same for input and output.
  Status run_on(const Algorithm& algorithm, const Operation& operation, const Shape& shape, const Table& table,
                const std::byte* input, std::byte* output, bool early = false) {
    HORO_ASSIGN(Plan plan, build_plan(algorithm, operation, shape, mesh_.rank(), table));
    Bytes work(plan.work_bytes(), std::byte{0xAA});
    Bytes scratch(plan.scratch_bytes(), std::byte{0xBB});
    Buffers buffers{input, output, work.data(), scratch.data(), nullptr, early};
    mesh_.begin(++number_, {operation.kind, operation.dtype, operation.op, table.version,
                            static_cast<uint32_t>(operation.root), operation.count});
    HORO_TRY(executor_.run(plan, buffers, Deadline::after_seconds(60)));
    executor_.deliver(plan, buffers);
    return {};
  }

  Executor& executor() { return executor_; }

 private:
  transport::Mesh& mesh_;
  Executor executor_;
  uint64_t number_ = 0;
};

/// Counts of a group's members that differ, some of them zero, summing up to about `count` per member.
inline std::vector<uint64_t> uneven_counts(int ranks, uint64_t count) {
  std::vector<uint64_t> counts;
  for (int rank = 0; rank < ranks; ++rank) {
    counts.push_back(rank % 3 == 2 ? 0 : count + static_cast<uint64_t>(rank * 2));
  }
  return counts;
}

/// Elements that rank `from` sends to rank `to` in the tests of alltoall.
inline uint64_t alltoall_count(int from, int to, uint64_t count) {
  return (from + to) % 4 == 3 ? 0 : count + static_cast<uint64_t>(2 * from + to);
}

/// An operation of about `count` elements per member as `rank` sees it.
inline Operation operation_of(Kind kind, int ranks, int rank, uint64_t count, int root) {
  Operation operation;
  operation.kind = kind;
  operation.dtype = DType::kF32;
  operation.root = root;
  operation.count = count;
  if (kind == Kind::kSendRecv) operation.target = (root + 1) % ranks;
  if (kind == Kind::kAlltoall) {
    for (int peer = 0; peer < ranks; ++peer) {
      operation.counts.push_back(alltoall_count(rank, peer, count));
      operation.receive_counts.push_back(alltoall_count(peer, rank, count));
    }
  } else if (kind == Kind::kReduceScatter || kind == Kind::kAllgather || kind == Kind::kGather ||
             kind == Kind::kScatter) {
    operation.counts = count == 0 ? std::vector<uint64_t>(static_cast<size_t>(ranks), 0) : uneven_counts(ranks, count);
  }
  return operation;
}

/// Elements of the input of `rank`.
inline uint64_t input_count_of(const Operation& operation, int rank) {
  switch (operation.kind) {
    case Kind::kBarrier:
    case Kind::kRefused:
      return 0;
    case Kind::kAllgather:
    case Kind::kGather:
      return operation.counts[static_cast<size_t>(rank)];
    case Kind::kBroadcast:
    case Kind::kScatter:
    case Kind::kSendRecv:
      return rank == operation.root ? operation.total() : 0;
    case Kind::kAllreduce:
    case Kind::kReduce:
    case Kind::kReduceScatter:
    case Kind::kAlltoall:
      return operation.total();
  }
  return 0;
}

/// For every element of the result of `rank`: which element of which ranks' inputs it is made of.
struct Origin {
  std::vector<int> ranks;  ///< In rank order; one, where nothing is reduced.
  uint64_t element = 0;
};
std::vector<Origin> origins_of(const Operation& operation, int ranks, int rank, uint64_t count);

}  // namespace horo::collective
