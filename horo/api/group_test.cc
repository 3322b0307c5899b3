#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <numeric>

#include "horo/api/rank_threads_testing.h"

namespace {

using horo::Engine;
using horo::Error;
using horo::Group;

/// Over shared memory, and over sockets.
class ApiGroup : public testing::TestWithParam<const char*> {
 protected:
  void run(int ranks, const std::function<void(Engine&)>& body) {
    horo::api::run_ranks(ranks, body, {std::string("HORO_TRANSPORT=") + GetParam()});
  }
};

INSTANTIATE_TEST_SUITE_P(Transports, ApiGroup, testing::Values("auto", "tcp"),
                         [](const auto& one) { return std::string(one.param == std::string("tcp") ? "Tcp" : "Shm"); });

TEST_P(ApiGroup, RanksFindThemselvesAndTheirTransport) {
  const std::string expected = GetParam() == std::string("tcp") ? "tcp" : "shm";
  run(2, [&](Engine& engine) {
    Group world = engine.world();
    EXPECT_EQ(world.size(), 2);
    EXPECT_EQ(world.rank(), engine.rank());
    EXPECT_EQ(world.transport(), expected);
    EXPECT_EQ(engine.members(), (std::vector<int>{0, 1}));
    EXPECT_EQ(engine.local_size(), 2);
    EXPECT_EQ(engine.local_rank(), engine.rank());
    world.barrier();
  });
}

TEST_P(ApiGroup, AllreduceWorksInPlaceAndOutOfPlaceInBothKindsOfMemory) {
  run(2, [](Engine& engine) {
    Group world = engine.world();
    for (size_t count : {1, 1000, 300000}) {
      std::vector<float> input(count, static_cast<float>(engine.rank() + 1)), output(count);
      horo::check(horo_allreduce(world.get(), input.data(), output.data(), count, HORO_F32, HORO_SUM));
      EXPECT_EQ(output, std::vector<float>(count, 3));
      EXPECT_EQ(input, std::vector<float>(count, static_cast<float>(engine.rank() + 1)));
      world.allreduce(input.data(), count, HORO_MAX);
      EXPECT_EQ(input, std::vector<float>(count, 2));
      auto buffer = engine.allocate<float>(count);
      std::fill_n(buffer.get(), count, static_cast<float>(engine.rank()));
      world.allreduce(buffer.get(), count, HORO_AVERAGE);
      EXPECT_EQ(std::vector<float>(buffer.get(), buffer.get() + count), std::vector<float>(count, 0.5F));
    }
  });
}

TEST_P(ApiGroup, TheOtherCollectivesMoveWhatTheTableSays) {
  run(3, [](Engine& engine) {
    Group world = engine.world();
    const int rank = engine.rank();
    std::vector<int> told{rank == 1 ? 42 : 0, rank == 1 ? 43 : 0};
    world.broadcast(told.data(), 2, 1);
    EXPECT_EQ(told, (std::vector<int>{42, 43}));

    const std::vector<int> two{rank, 10 * rank};
    std::vector<int> gathered(6);
    world.allgather(two.data(), gathered.data(), 2);
    EXPECT_EQ(gathered, (std::vector<int>{0, 0, 1, 10, 2, 20}));

    const std::vector<int> blocks{rank, rank + 1, rank + 2, rank + 3, rank + 4, rank + 5};
    std::vector<int> mine(2);
    world.reducescatter(blocks.data(), mine.data(), 2);
    EXPECT_EQ(mine, (std::vector<int>{3 + 6 * rank, 6 + 6 * rank}));

    std::vector<int> swapped(6);
    world.alltoall(blocks.data(), swapped.data(), 2);
    for (int from = 0; from < 3; ++from) EXPECT_EQ(swapped[static_cast<size_t>(2 * from)], from + 2 * rank);
  });
}

TEST_P(ApiGroup, EveryCollectiveMayWorkInPlace) {
  run(3, [](Engine& engine) {
    Group world = engine.world();
    const auto rank = static_cast<size_t>(engine.rank());
    constexpr size_t kBlock = 5000;
    const auto all = [](const std::vector<int>& values, size_t block) { return values[block * kBlock + kBlock - 1]; };
    std::vector<int> gathered(3 * kBlock, -1);
    std::fill_n(gathered.begin(), kBlock, engine.rank());
    world.allgather(gathered.data(), gathered.data(), kBlock);
    for (size_t from = 0; from < 3; ++from) EXPECT_EQ(all(gathered, from), static_cast<int>(from));

    std::vector<int> placed(3 * kBlock, -1);
    std::fill_n(placed.begin() + static_cast<std::ptrdiff_t>(rank * kBlock), kBlock, engine.rank());
    world.allgather(placed.data() + rank * kBlock, placed.data(), kBlock);
    EXPECT_EQ(placed, gathered);

    std::vector<int> scattered = gathered;
    world.reducescatter(scattered.data(), scattered.data(), kBlock);
    EXPECT_EQ(all(scattered, 0), 3 * engine.rank());

    std::vector<int> swapped = gathered;
    world.alltoall(swapped.data(), swapped.data(), kBlock);
    for (size_t from = 0; from < 3; ++from) EXPECT_EQ(all(swapped, from), engine.rank());
  });
}

TEST_P(ApiGroup, UnevenAndRootedOperationsRunThroughTheStruct) {
  run(3, [](Engine& engine) {
    Group world = engine.world();
    const auto rank = static_cast<size_t>(engine.rank());
    const uint64_t counts[] = {1, 0, 3};
    horo_operation operation = HORO_OPERATION_INIT;
    operation.kind = HORO_GATHER;
    operation.dtype = HORO_U8;
    operation.counts = counts;
    operation.root = 2;
    std::vector<uint8_t> given(counts[rank], static_cast<uint8_t>(rank + 1)), all(4);
    world.run(operation, given.data(), rank == 2 ? all.data() : nullptr);
    EXPECT_EQ(all, rank == 2 ? (std::vector<uint8_t>{1, 3, 3, 3}) : std::vector<uint8_t>(4));

    operation = HORO_OPERATION_INIT;
    operation.kind = HORO_SENDRECV;
    operation.dtype = HORO_F64;
    operation.count = 1;
    operation.root = 2;
    operation.target = 0;
    double value = rank == 2 ? 2.5 : 0;
    world.run(operation, &value, &value);
    EXPECT_EQ(value, rank == 1 ? 0 : 2.5);
  });
}

TEST_P(ApiGroup, SubmittedOperationsCallBackOnceAndInOrder) {
  run(2, [](Engine& engine) {
    struct Seen {
      std::atomic<int> calls{0}, failures{0};
    } seen;
    constexpr size_t kOperations = 30;
    std::vector<std::vector<float>> values(kOperations, std::vector<float>(500, 1));
    std::vector<horo::Request> requests;
    for (auto& one : values) {
      horo_operation operation = HORO_OPERATION_INIT;
      operation.kind = HORO_ALLREDUCE;
      operation.dtype = HORO_F32;
      operation.count = one.size();
      horo_request* request = nullptr;
      horo::check(horo_group_submit(
          engine.world().get(), &operation, one.data(), one.data(),
          [](void* context, const horo_status* status) {
            ++static_cast<Seen*>(context)->calls;
            if (status != nullptr) ++static_cast<Seen*>(context)->failures;
          },
          &seen, &request));
      requests.emplace_back(request);
    }
    for (auto& request : requests) request.wait(20);
    for (auto& request : requests) EXPECT_TRUE(request.done());
    for (auto& one : values) EXPECT_EQ(one, std::vector<float>(500, 2));
    engine.shutdown();  // Joins the thread that calls back.
    EXPECT_EQ(seen.calls, static_cast<int>(kOperations));
    EXPECT_EQ(seen.failures, 0);
  });
}

TEST_P(ApiGroup, WaitingForARequestCanTimeOutAndTheOperationGoesOn) {
  std::promise<void> timed_out;
  std::shared_future<void> go = timed_out.get_future().share();
  run(2, [&](Engine& engine) {
    Group world = engine.world();
    int value = 1;
    if (engine.rank() == 1) go.wait();
    horo::Request request = world.allreduce_async(&value, 1);
    if (engine.rank() == 0) {
      try {
        request.wait(0.01);
        ADD_FAILURE() << "rank 1 did not join, but the operation ended";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), HORO_TIMEOUT) << error.what();
      }
      timed_out.set_value();
    }
    request.wait();
    EXPECT_EQ(value, 2);
  });
}

TEST_P(ApiGroup, GroupsOfSomeRanksComeAndGo) {
  run(3, [](Engine& engine) {
    for (int turn = 0; turn < 3; ++turn) {
      if (engine.rank() != 1) {
        Group pair = engine.group({0, 2});
        EXPECT_EQ(pair.size(), 2);
        EXPECT_EQ(pair.rank(), engine.rank() / 2);
        int sum = engine.rank() + 1;
        pair.allreduce(&sum, 1);
        EXPECT_EQ(sum, 4);
      }
      engine.world().barrier();
    }
  });
}

TEST_P(ApiGroup, WrongGroupsAreRefused) {
  run(2, [](Engine& engine) {
    for (const std::vector<int>& ranks : {std::vector<int>{}, {1, 0}, {0, 0, 1}, {0, 1, 2}, {1 - engine.rank()}}) {
      try {
        engine.group(ranks);
        ADD_FAILURE() << "a wrong group was made";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), HORO_INVALID_ARGUMENT) << error.what();
      }
    }
    engine.world().barrier();
  });
}

TEST_P(ApiGroup, AMismatchFailsOnAllRanksNamesBothSidesAndTheGroupStaysUsable) {
  run(2, [](Engine& engine) {
    Group world = engine.world();
    std::vector<float> values(200, 1);
    horo_status* status =
        horo_allreduce(world.get(), values.data(), values.data(), engine.rank() == 0 ? 100 : 200, HORO_F32, HORO_SUM);
    EXPECT_EQ(horo_status_code(status), HORO_MISMATCH) << horo_status_message(status);
    EXPECT_NE(std::string(horo_status_message(status)).find("100"), std::string::npos) << horo_status_message(status);
    EXPECT_NE(std::string(horo_status_message(status)).find("200"), std::string::npos) << horo_status_message(status);
    EXPECT_EQ(horo_status_operation(status), 1u);
    EXPECT_EQ(horo_status_contents_intact(status), 1);
    horo_status_free(status);
    EXPECT_EQ(values, std::vector<float>(200, 1));
    try {
      if (engine.rank() == 0)
        world.allreduce(values.data(), 10, HORO_SUM);
      else
        world.broadcast(values.data(), 10, 0);
      ADD_FAILURE() << "different operations went together";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), HORO_MISMATCH) << error.what();
      EXPECT_EQ(error.operation(), 2u);
    }
    world.allreduce(values.data(), values.size());
    EXPECT_EQ(values, std::vector<float>(200, 2));
  });
}

TEST(ApiOperation, WrongCallsAreErrorsAndNotCrashes) {
  Engine engine;
  horo_group* world = horo_engine_world(engine.get());
  const auto code = [](horo_status* status) {
    const horo_code result = horo_status_code(status);
    horo_status_free(status);
    return result;
  };
  float value = 1;
  EXPECT_EQ(code(horo_allreduce(nullptr, &value, &value, 1, HORO_F32, HORO_SUM)), HORO_INVALID_ARGUMENT);
  EXPECT_EQ(code(horo_allgather(nullptr, &value, &value, 1, HORO_F32)), HORO_INVALID_ARGUMENT);
  EXPECT_EQ(code(horo_allreduce(world, nullptr, &value, 1, HORO_F32, HORO_SUM)), HORO_INVALID_ARGUMENT);
  EXPECT_EQ(code(horo_allreduce(world, &value, nullptr, 1, HORO_F32, HORO_SUM)), HORO_INVALID_ARGUMENT);
  for (int number : {99, HORO_F32 + 256}) {
    EXPECT_EQ(code(horo_allreduce(world, &value, &value, 1, static_cast<horo_dtype>(number), HORO_SUM)),
              HORO_INVALID_ARGUMENT);
  }
  for (int number : {99, HORO_MAX + 256}) {
    EXPECT_EQ(code(horo_allreduce(world, &value, &value, 1, HORO_F32, static_cast<horo_reduce_op>(number))),
              HORO_INVALID_ARGUMENT);
  }
  EXPECT_EQ(code(horo_allreduce(world, &value, &value, 1, HORO_F8E4M3, HORO_SUM)), HORO_INVALID_ARGUMENT);
  EXPECT_EQ(code(horo_allreduce(world, &value, &value, ~uint64_t{0}, HORO_F32, HORO_SUM)), HORO_INVALID_ARGUMENT);
  EXPECT_EQ(code(horo_broadcast(world, &value, 1, HORO_F32, 1)), HORO_INVALID_ARGUMENT);
  EXPECT_EQ(code(horo_broadcast(world, &value, 1, HORO_F32, -1)), HORO_INVALID_ARGUMENT);
  EXPECT_EQ(code(horo_group_run(world, nullptr, &value, &value)), HORO_INVALID_ARGUMENT);
  horo_operation operation = HORO_OPERATION_INIT;
  operation.kind = static_cast<horo_kind>(77);
  EXPECT_EQ(code(horo_group_run(world, &operation, &value, &value)), HORO_INVALID_ARGUMENT);
  operation.kind = HORO_ALLGATHER;  // Without counts.
  EXPECT_EQ(code(horo_group_run(world, &operation, &value, &value)), HORO_INVALID_ARGUMENT);
  EXPECT_EQ(code(horo_group_submit(world, &operation, &value, &value, nullptr, nullptr, nullptr)),
            HORO_INVALID_ARGUMENT);
  EXPECT_EQ(code(horo_barrier(world)), HORO_OK);
  EXPECT_EQ(value, 1);
}

}  // namespace
