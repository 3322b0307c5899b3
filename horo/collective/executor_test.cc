// When the caller's memory is written, and what is in it when an operation fails.
#include "horo/collective/executor.h"

#include <gtest/gtest.h>

#include <functional>

#include "horo/collective/ranks_as_threads.h"
#include "horo/transport/interrupted_testing.h"

namespace horo::collective {
namespace {

constexpr uint64_t kCount = 100;

Table in_segments() {
  Table table;
  table.segment_bytes = 40;
  return table;
}

Bytes input_of(int rank) {
  Bytes bytes(kCount * sizeof(float));
  for (uint64_t i = 0; i < kCount; ++i) {
    const float value = static_cast<float>(i) + 1000.0F * static_cast<float>(rank + 1);
    std::memcpy(bytes.data() + i * sizeof(float), &value, sizeof(float));
  }
  return bytes;
}

Plan plan_of(int rank, const Operation& operation) {
  auto plan = build_plan(*find_algorithm("pairwise"), operation, Shape::on_one_host(2), rank, in_segments());
  EXPECT_TRUE(plan.ok()) << plan.status();
  return std::move(plan).value();
}

transport::Signature signature_of(const Operation& operation) {
  return {operation.kind, operation.dtype, operation.op, in_segments().version, 0, operation.count};
}

/// In the caller's memory on two ranks; rank 0's wire is cut before its wait number `cut_at`. Returns how often rank 0
/// waited.
int run_in_place(int cut_at, const std::function<void(int rank, const Status& status, const Bytes& memory)>& check) {
  transport::InprocFabric fabric(2);
  const auto operation = operation_of(Kind::kAllreduce, 2, 0, kCount, 0);
  int waits = 0;
  run_ranks(2, [&](int rank) {
    transport::Interrupted mesh(fabric.mesh(rank), [&](int wait) {
      if (rank == 0 && wait == cut_at) fabric.cut(0, 1);
    });
    const Plan plan = plan_of(rank, operation);
    Bytes memory = input_of(rank);
    Bytes kept(plan.work_bytes(), std::byte{0xAA});
    Bytes scratch(plan.scratch_bytes());
    const Buffers buffers{memory.data(), memory.data(), memory.data(), scratch.data(), kept.data()};
    Executor executor(mesh);
    mesh.begin(1, signature_of(operation));
    const Status status = executor.run(plan, buffers, Deadline::after_seconds(60));
    if (status.ok()) executor.deliver(plan, buffers);
    check(rank, status, memory);
    if (rank == 0) waits = mesh.waits();
  });
  return waits;
}

Bytes sum_of_two() {
  Bytes bytes(kCount * sizeof(float));
  for (uint64_t i = 0; i < kCount; ++i) {
    const float value = 2.0F * static_cast<float>(i) + 3000.0F;
    std::memcpy(bytes.data() + i * sizeof(float), &value, sizeof(float));
  }
  return bytes;
}

TEST(Executor, RunsInTheCallersMemory) {
  const int waits = run_in_place(-1, [](int rank, const Status& status, const Bytes& memory) {
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(memory, sum_of_two()) << "rank " << rank;
  });
  EXPECT_GT(waits, 4) << "no segments that are kept while others are on their way";
}

TEST(Executor, PutsBackWhatTheCallersMemoryHeldWhereverItFails) {
  int failed = 0;
  for (int cut_at = 0;; ++cut_at) {
    std::atomic<int> failures{0};
    const int waits = run_in_place(cut_at, [&](int rank, const Status& status, const Bytes& memory) {
      failures += status.ok() ? 0 : 1;
      EXPECT_EQ(memory, status.ok() ? sum_of_two() : input_of(rank)) << "rank " << rank << ", cut at " << cut_at;
    });
    if (waits <= cut_at) break;  // It was over before.
    failed += failures;
  }
  EXPECT_GT(failed, 4);
}

// As where a survivor serves the result that this member did not get.
TEST(Executor, DeliversAllAfterARunThatFailed) {
  transport::InprocFabric fabric(2);
  const auto operation = operation_of(Kind::kAllreduce, 2, 0, kCount, 0);
  run_ranks(2, [&](int rank) {
    transport::Interrupted mesh(fabric.mesh(rank), [&](int wait) {
      if (rank == 0 && wait == 4) fabric.cut(0, 1);
    });
    const Plan plan = plan_of(rank, operation);
    const Bytes input = input_of(rank);
    Bytes output(input.size(), std::byte{0});
    Bytes work(plan.work_bytes());
    Bytes scratch(plan.scratch_bytes());
    const Buffers buffers{input.data(), output.data(), work.data(), scratch.data(), nullptr, true};
    Executor executor(mesh);
    mesh.begin(1, signature_of(operation));
    EXPECT_FALSE(executor.run(plan, buffers, Deadline::after_seconds(60)).ok());
    EXPECT_EQ(input, input_of(rank));
    EXPECT_NE(output, Bytes(input.size(), std::byte{0})) << "nothing was delivered early";
    const Bytes served = sum_of_two();
    std::copy(served.begin(), served.end(), work.begin());
    executor.deliver(plan, buffers);
    EXPECT_EQ(output, served);
  });
}

}  // namespace
}  // namespace horo::collective
