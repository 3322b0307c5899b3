// The direct collectives with threads as ranks: results against a reference, sizes on both sides of every threshold,
// mismatches, refusals, deaths.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <random>
#include <thread>

#include "horo/base/text.h"
#include "horo/collective/direct/caller_testing.h"

namespace horo::collective::direct {
namespace {

const Kind kAllKinds[] = {Kind::kBarrier, Kind::kAllreduce, Kind::kReduce,    Kind::kReduceScatter, Kind::kAllgather,
                          Kind::kGather,  Kind::kScatter,   Kind::kBroadcast, Kind::kAlltoall,      Kind::kSendRecv};

class Direct : public testing::TestWithParam<int> {};

TEST_P(Direct, EveryCollectiveGivesTheReferenceResultAndLeavesInputsAlone) {
  run_collectives(GetParam(), kAllKinds, Readers::kSome);
}

TEST_P(Direct, AllreduceInPlaceAndInBuffersOfTheLibraryGivesTheSame) {
  const int ranks = GetParam();
  Fabric fabric(ranks, kSegment);
  run_ranks(ranks, [&](int rank) {
    Caller caller(fabric, rank);
    for (uint64_t count : {1, 200, 5000, 120000}) {
      Operation operation = operation_of(Kind::kAllreduce, ranks, rank, count, 0);
      std::vector<float> expected = expected_of(operation, ranks, rank, count);
      std::vector<float> memory = input_of(operation, rank);
      ASSERT_TRUE(caller.call(operation, bytes_of(memory), bytes_of(memory)).ok());
      EXPECT_EQ(memory, expected) << "in place, " << count;

      // Odd ranks use a buffer in their segment, so that copying and not copying members meet.
      std::vector<float> input = input_of(operation, rank);
      std::byte* buffer = fabric.segment(rank).data() + kStaging;
      std::byte* place = rank % 2 == 1 ? buffer : bytes_of(input);
      if (place == buffer) std::memcpy(buffer, input.data(), count * sizeof(float));
      ASSERT_TRUE(caller.call(operation, place, place).ok());
      EXPECT_EQ(std::memcmp(place, expected.data(), count * sizeof(float)), 0) << "mixed, " << count;
    }
  });
}

TEST_P(Direct, BuffersOfTheLibraryMayBeOverwrittenAsSoonAsTheCallReturns) {
  const int ranks = GetParam();
  Fabric fabric(ranks, kSegment);
  run_ranks(ranks, [&](int rank) {
    Caller caller(fabric, rank);
    std::byte* buffer = fabric.segment(rank).data() + kStaging;
    for (int turn = 0; turn < 50; ++turn) {
      for (Kind kind : {Kind::kAllreduce, Kind::kBroadcast, Kind::kAllgather}) {
        const uint64_t count = 3000;
        Operation operation = operation_of(kind, ranks, rank, count, turn % ranks);
        std::vector<float> input = input_of(operation, rank);
        std::copy(input.begin(), input.end(), reinterpret_cast<float*>(buffer));
        std::vector<float> output(operation.result_count(rank));
        const bool in_place = kind == Kind::kAllreduce;
        ASSERT_TRUE(caller.call(operation, buffer, in_place ? buffer : bytes_of(output)).ok());
        if (in_place) std::memcpy(output.data(), buffer, count * sizeof(float));
        std::memset(buffer, 0xFF, count * sizeof(float));
        ASSERT_EQ(output, expected_of(operation, ranks, rank, count)) << transport::name(kind) << " turn " << turn;
      }
    }
  });
}

// Buffers that begin and end anywhere, on every rank elsewhere; what lies beside them stays.
TEST_P(Direct, AllreduceWhereAllHaveBuffersOfTheLibraryGivesTheSame) {
  const int ranks = GetParam();
  Fabric fabric(ranks, kSegment);
  constexpr std::byte kBeside{0x5A};
  run_ranks(ranks, [&](int rank) {
    Caller caller(fabric, rank);
    const auto buffers = fabric.segment(rank).subspan(kStaging);
    for (uint64_t count : {200, 256, 257, 300, 1024, 5000, 60001}) {
      for (uint64_t shift : {0, 1, 63, 64, 77}) {
        for (bool in_place : {true, false}) {
          Operation operation = operation_of(Kind::kAllreduce, ranks, rank, count, 0);
          const std::vector<float> expected = expected_of(operation, ranks, rank, count);
          const std::vector<float> input = input_of(operation, rank);
          const uint64_t bytes = count * sizeof(float);
          std::memset(buffers.data(), 0x5A, 2048 + bytes);
          std::byte* out = buffers.data() + 256 + shift * static_cast<uint64_t>(rank + 1) % 200 * sizeof(float);
          std::byte* in = in_place ? out : buffers.data() + buffers.size() / 2 + shift * sizeof(float);
          std::memcpy(in, input.data(), bytes);
          ASSERT_TRUE(caller.call(operation, in, out).ok());
          ASSERT_EQ(std::memcmp(out, expected.data(), bytes), 0) << count << " shifted by " << shift;
          EXPECT_TRUE(in_place || std::memcmp(in, input.data(), bytes) == 0);
          EXPECT_EQ(out[-1], kBeside);
          EXPECT_EQ(out[bytes], kBeside);
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Direct, testing::Range(1, 10));

TEST(DirectMismatch, FailsOnAllRanksNamesBothSidesAndTheGroupGoesOn) {
  constexpr int kRanks = 3;
  Fabric fabric(kRanks, kSegment);
  run_ranks(kRanks, [&](int rank) {
    Caller caller(fabric, rank);
    std::vector<float> memory(200000, 1);
    for (uint64_t count : {uint64_t{3}, uint64_t{300}, uint64_t{90000}}) {
      Operation odd = operation_of(Kind::kAllreduce, kRanks, rank, rank == 1 ? count + 1 : count, 0);
      Status status = caller.call(odd, bytes_of(memory), bytes_of(memory));
      EXPECT_EQ(status.code(), Code::kMismatch) << status;
      EXPECT_NE(status.message().find(text("allreduce of ", count, " f32")), std::string::npos) << status;
      EXPECT_NE(status.message().find(text("allreduce of ", count + 1, " f32")), std::string::npos) << status;
      EXPECT_EQ(memory[0], 1);
      Operation kinds = operation_of(rank == 2 ? Kind::kBroadcast : Kind::kBarrier, kRanks, rank, 70000, 0);
      EXPECT_EQ(caller.call(kinds, bytes_of(memory), bytes_of(memory)).code(), Code::kMismatch);
      Operation good = operation_of(Kind::kAllreduce, kRanks, rank, 5, 0);
      std::vector<float> sum(5, 2);
      ASSERT_TRUE(caller.call(good, bytes_of(sum), bytes_of(sum)).ok());
      EXPECT_EQ(sum[4], 6);
    }
  });
}

TEST(DirectMismatch, DisagreeingAlltoallCountsFailOnAllRanks) {
  constexpr int kRanks = 4;
  Fabric fabric(kRanks, kSegment);
  run_ranks(kRanks, [&](int rank) {
    Caller caller(fabric, rank);
    Operation operation = operation_of(Kind::kAlltoall, kRanks, rank, 10, 0);
    if (rank == 2) operation.receive_counts[1] += 5;
    std::vector<float> in(operation.total()), out(operation.result_count(rank));
    Status status = caller.call(operation, bytes_of(in), bytes_of(out));
    EXPECT_EQ(status.code(), Code::kMismatch) << status;
    EXPECT_NE(status.message().find("rank 1 sends"), std::string::npos) << status;
    EXPECT_TRUE(caller.call(operation_of(Kind::kBarrier, kRanks, rank, 0, 0), nullptr, nullptr).ok());
  });
}

TEST(DirectRefusal, OneRankWithoutMemoryFailsTheOperationOnAllAndTheGroupGoesOn) {
  constexpr int kRanks = 3;
  Fabric fabric(kRanks, kSegment);
  run_ranks(kRanks, [&](int rank) {
    transport::Space space = fabric.space(rank, kStaging);
    if (rank == 1) space.commit = [](size_t) { return Status(Code::kUnavailable, "no memory left"); };
    Protocol protocol(std::move(space), small_thresholds(rank));
    std::vector<float> memory(60000, 1);
    Operation large = operation_of(Kind::kAllreduce, kRanks, rank, memory.size(), 0);
    Call call{1, {large.kind, large.dtype, large.op, 0, 0, large.count}, Deadline::after_seconds(60)};
    Status status = run(protocol, call, large, bytes_of(memory), bytes_of(memory));
    EXPECT_EQ(status.code(), Code::kUnavailable) << status;
    EXPECT_NE(status.message().find("no memory left"), std::string::npos) << status;
    EXPECT_EQ(memory, std::vector<float>(60000, 1));
    Call next{2, {}, Deadline::after_seconds(60)};
    EXPECT_TRUE(run(protocol, next, Operation{}, nullptr, nullptr).ok());
  });
}

TEST(DirectRefusal, ABlockOfMoreStepsThanCanBeCountedIsRefusedOnAllRanks) {
  Fabric fabric(2, kSegment);
  run_ranks(2, [&](int rank) {
    Thresholds thresholds = small_thresholds(rank);
    thresholds.step_bytes = 16;
    Protocol protocol(fabric.space(rank, kStaging), thresholds);
    std::vector<float> memory(4 << 20, 1);  // 2^20 steps.
    Operation much = operation_of(Kind::kBroadcast, 2, rank, memory.size(), 0);
    Call call{1, {much.kind, much.dtype, much.op, 0, 0, much.count}, Deadline::after_seconds(60)};
    Status status = run(protocol, call, much, bytes_of(memory), bytes_of(memory));
    EXPECT_EQ(status.code(), Code::kUnavailable) << status;
    EXPECT_NE(status.message().find("divide it"), std::string::npos) << status;
    Call next{2, {}, Deadline::after_seconds(60)};
    EXPECT_TRUE(run(protocol, next, Operation{}, nullptr, nullptr).ok());
  });
}

TEST(DirectDeath, SurvivorsFailTheSameOperationAndKeepTheirInputs) {
  constexpr int kRanks = 4;
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(text("seed ", seed));
  std::mt19937 random(seed);
  for (int turn = 0; turn < 60; ++turn) {
    Fabric fabric(kRanks, kSegment);
    const int victim = static_cast<int>(random() % kRanks);
    const uint64_t fatal = 1 + random() % 5;
    const uint64_t count = std::vector<uint64_t>{3, 120, 5000, 120000}[random() % 4];
    std::vector<uint64_t> failed(kRanks);
    run_ranks(kRanks, [&](int rank) {
      Caller caller(fabric, rank);
      Operation operation = operation_of(Kind::kAllreduce, kRanks, rank, count, 0);
      for (uint64_t k = 1;; ++k) {
        if (rank == victim && k == fatal) return fabric.kill(rank);
        std::vector<float> memory = input_of(operation, rank);
        Status status = caller.call(operation, bytes_of(memory), bytes_of(memory));
        if (status.ok()) {
          ASSERT_EQ(memory, expected_of(operation, kRanks, rank, count));
          continue;
        }
        EXPECT_EQ(status.code(), Code::kStopped) << status;
        EXPECT_EQ(memory, input_of(operation, rank));
        EXPECT_EQ(caller.protocol().space().page.evicted(), std::vector<int>{victim});
        failed[static_cast<size_t>(rank)] = k;
        return;
      }
    });
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == victim) continue;
      EXPECT_EQ(failed[static_cast<size_t>(rank)], fatal);
    }
  }
}

// Whenever it happens: a survivor's last operation is whole, or its memory as it was before, and all agree.
TEST(DirectDeath, MembersThatAreCutOffInTheMiddlePutTheirInputsBack) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(text("seed ", seed));
  std::mt19937 random(seed);
  constexpr uint64_t kCount = 90'001;
  const auto combined = [](int ranks, ReduceOp op, float factor) {
    std::vector<float> result(kCount);
    for (uint64_t i = 0; i < kCount; ++i) {
      float value_of_all = value(0, i);
      for (int rank = 1; rank < ranks; ++rank) {
        const float next = value(rank, i);
        value_of_all = op == ReduceOp::kSum ? value_of_all + next : std::max(value_of_all, next);
      }
      result[i] = factor * value_of_all;
    }
    return result;
  };
  for (int turn = 0; turn < 300; ++turn) {
    // A pair in turns, where there are kernels for it, a pair abreast, slices; all of them scaled, too.
    const int ranks = std::array{2, 2, 3, 4}[static_cast<size_t>(turn) % 4];
    const Rings rings = std::array{Rings::kFar, Rings::kNear, Rings::kMixed}[static_cast<size_t>(turn) % 3];
    const ReduceOp op = turn / 12 % 3 == 1 ? ReduceOp::kMax : ReduceOp::kSum;
    const float factor = turn / 12 % 3 == 2 ? 0.5F : 1.0F;
    SCOPED_TRACE(text("turn ", turn));
    Fabric fabric(ranks, kSegment);
    const int evicted = ranks - 1;
    const transport::ControlPage page = fabric.space(0, kStaging).page;
    const uint64_t delay = random() % 100;
    std::atomic<bool> begun{false};
    std::thread killer([&] {
      while (!begun) std::this_thread::yield();
      for (uint64_t i = 0; i < delay; ++i) std::this_thread::yield();
      page.revoke({evicted});
    });
    std::vector<uint64_t> succeeded(static_cast<size_t>(ranks));
    run_ranks(ranks, [&](int rank) {
      Caller caller(fabric, rank, rings);
      Operation operation = operation_of(Kind::kAllreduce, ranks, rank, kCount, 0);
      operation.op = op;
      operation.prescale = factor;
      const std::vector<float> input = input_of(operation, rank), result = combined(ranks, op, factor);
      for (;;) {
        std::vector<float> memory = input;
        begun = true;
        const Status status = caller.call(operation, bytes_of(memory), bytes_of(memory));
        if (!status.ok()) {
          EXPECT_EQ(status.code(), Code::kStopped) << status;
          EXPECT_TRUE(status.contents_intact());
          EXPECT_TRUE(memory == input) << "rank " << rank;
          return;
        }
        ASSERT_TRUE(memory == result) << "rank " << rank;
        ++succeeded[static_cast<size_t>(rank)];
      }
    });
    killer.join();
    // Who is evicted may fail though the operation is decided.
    const uint64_t decided = succeeded[0];
    for (int rank = 1; rank < evicted; ++rank) EXPECT_EQ(succeeded[static_cast<size_t>(rank)], decided);
    EXPECT_LE(succeeded[static_cast<size_t>(evicted)], decided);
    EXPECT_LE(decided - succeeded[static_cast<size_t>(evicted)], 1U);
  }
}

TEST(DirectDeath, BuffersOfTheLibraryAreIntactWhereNobodyCanHaveBegunToWriteThere) {
  for (const int ranks : {2, 3}) {
    for (uint64_t count : {200, 256, 5000}) {
      for (uint64_t shift : {0, 3}) {
        Fabric fabric(ranks, kSegment);
        run_ranks(ranks, [&](int rank) {
          Caller caller(fabric, rank);
          Operation operation = operation_of(Kind::kAllreduce, ranks, rank, count, 0);
          const std::vector<float> input = input_of(operation, rank);
          const std::vector<float> expected = expected_of(operation, ranks, rank, count);
          std::byte* buffer = fabric.segment(rank).data() + kStaging + shift * sizeof(float);
          const auto holds = [&](const std::vector<float>& wanted) {
            return std::memcmp(buffer, wanted.data(), count * sizeof(float)) == 0;
          };
          std::memcpy(buffer, input.data(), count * sizeof(float));
          ASSERT_TRUE(caller.call(operation, buffer, buffer).ok());
          ASSERT_TRUE(holds(expected));
          if (rank == ranks - 1) return fabric.kill(rank);
          std::memcpy(buffer, input.data(), count * sizeof(float));
          const Status status = caller.call(operation, buffer, buffer);
          EXPECT_EQ(status.code(), Code::kStopped) << status;
          EXPECT_TRUE(status.contents_intact());
          EXPECT_TRUE(holds(input)) << count << " shifted by " << shift << ", " << ranks << " ranks";
        });
      }
    }
  }
}

TEST(DirectDeadline, ALateMemberIsNamed) {
  Fabric fabric(2, kSegment);
  Protocol protocol(fabric.space(0, kStaging), small_thresholds(0));
  Status status = run(protocol, {7, {}, Deadline::after_seconds(0.02)}, Operation{}, nullptr, nullptr);
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_NE(status.message().find("rank 1"), std::string::npos) << status;
}

// Member 2 comes at about the instant at which member 0 has waited long enough.
TEST(DirectDeadline, PassesForAllMembersOrForNone) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(text("seed ", seed));
  std::mt19937 random(seed);
  constexpr int kRanks = 3;
  int succeeded = 0;
  for (int turn = 0; turn < 300; ++turn) {
    Fabric fabric(kRanks, kSegment);
    const uint64_t count = turn % 2 == 0 ? 3 : 5000;
    const Time limit = Clock::now() + std::chrono::microseconds(500);
    const Time arrival = limit + std::chrono::microseconds(static_cast<int>(random() % 200) - 100);
    std::array<Status, kRanks> ends;
    run_ranks(kRanks, [&](int rank) {
      Protocol protocol(fabric.space(rank, kStaging), small_thresholds(rank));
      const Operation operation = operation_of(Kind::kAllreduce, kRanks, rank, count, 0);
      std::vector<float> memory = input_of(operation, rank);
      const Deadline deadline = rank == 0 ? Deadline(limit) : Deadline::after_seconds(60);
      while (rank == 2 && Clock::now() < arrival) std::this_thread::yield();
      const Call call{1, {operation.kind, operation.dtype, operation.op, 0, 0, operation.count}, deadline};
      Status status = run(protocol, call, operation, bytes_of(memory), bytes_of(memory));
      if (status.code() == Code::kTimeout) protocol.space().page.revoke({});  // As the group does.
      EXPECT_TRUE(memory == (status.ok() ? expected_of(operation, kRanks, rank, count) : input_of(operation, rank)));
      ends[static_cast<size_t>(rank)] = std::move(status);
    });
    succeeded += ends[0].ok() ? 1 : 0;
    for (const Status& end : ends) EXPECT_EQ(end.ok(), ends[0].ok()) << "turn " << turn << ": " << ends[0] << end;
  }
  std::printf("  %d of 300 succeeded\n", succeeded);
}

}  // namespace
}  // namespace horo::collective::direct
