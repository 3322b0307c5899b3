// Negotiated execution by real processes: any order, any thread, groups, joins, process sets, losses.
#include "horo/engine/runtime.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "tests/process.h"
#include "tests/runtime_job.h"
#include "tests/workload.h"

#include "horo/base/text.h"
#include "horo/engine/runner.h"

namespace horo::test {
namespace {

int submit_in_random_order(Runtime& runtime, int steps, int tensors) {
  std::mt19937 random(static_cast<unsigned>(runtime.rank()) + 7);
  const float sum = static_cast<float>(runtime.size() * (runtime.size() + 1)) / 2;
  for (int step = 0; step < steps; ++step) {
    std::vector<int> order(static_cast<size_t>(tensors));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    std::vector<std::vector<float>> data(order.size());
    std::vector<Handle> handles;
    for (int tensor : order) {
      std::vector<float>& values = data[static_cast<size_t>(tensor)];
      values.assign(static_cast<size_t>(1 + tensor * 37 % 500),
                    static_cast<float>((runtime.rank() + 1) * (tensor + 1)));
      auto handle = runtime.submit(0, {in_place(text("t", tensor), values)});
      REQUIRE_OK(handle.status());
      handles.push_back(*handle);
    }
    for (const Handle& handle : handles) REQUIRE_OK(runtime.wait(0, handle));
    for (int tensor : order) {
      const float expected = sum * static_cast<float>(tensor + 1);
      for (float value : data[static_cast<size_t>(tensor)]) REQUIRE(value == expected);
    }
  }
  return leave_together(runtime);
}

TEST(Runtime, TensorsInDifferentOrdersMeet) {
  for (int ranks : {1, 2, 3, 4, 8}) {
    SCOPED_TRACE(text(ranks, " ranks"));
    auto job = start({.ranks = ranks}, [](Runtime& runtime) { return submit_in_random_order(runtime, 20, 50); });
    ASSERT_TRUE(job);
    expect_zero(*job);
  }
}

int small_ones_after_a_large_one(Runtime& runtime) {
  std::vector<float> large(4 << 20, 1);
  REQUIRE_OK(allreduce(runtime, "large", large));
  std::vector<float> small(1, 0);
  for (int turn = 0; turn < 20; ++turn) REQUIRE_OK(allreduce(runtime, "small", small));
  const long before = use_of(getpid(), "horo-run").switches;
  REQUIRE(before > 0);  // The large one was run by that thread.
  for (int turn = 0; turn < 500; ++turn) REQUIRE_OK(allreduce(runtime, "small", small));
  const long woken = use_of(getpid(), "horo-run").switches - before;
  tell(text("woken ", woken, " times"));
  REQUIRE(woken < 50);
  return leave_together(runtime);
}

TEST(Runtime, ALargeTensorLeavesNoThreadBehindThatSmallOnesWake) {
  auto job = start({.ranks = 2}, small_ones_after_a_large_one);
  ASSERT_TRUE(job);
  expect_zero(*job);
}

TEST(Runtime, TensorsInDifferentOrdersMeetOverTcpAndBetweenHosts) {
  auto tcp = start({.ranks = 3, .environment = {{"HORO_TRANSPORT", "tcp"}}},
                   [](Runtime& runtime) { return submit_in_random_order(runtime, 5, 20); });
  ASSERT_TRUE(tcp);
  expect_zero(*tcp);
  tcp.reset();  // And its threads, before the next ranks are forked.
  JobOptions hosts{.ranks = 5};
  hosts.per_rank = [](int rank) {
    return std::map<std::string, std::string, std::less<>>{{"HORO_HOST_ID", text("host", rank / 2)}};
  };
  auto mixed = start(hosts, [](Runtime& runtime) { return submit_in_random_order(runtime, 5, 20); });
  ASSERT_TRUE(mixed);
  expect_zero(*mixed);
}

int every_operation(Runtime& runtime) {
  const int size = runtime.size(), rank = runtime.rank();
  // Allgather with different numbers of rows, two of them fused.
  std::vector<float> rows(static_cast<size_t>(rank + 1) * 2, static_cast<float>(rank));
  Call first = call_of("rows", Kind::kAllgather, rows), second = call_of("more rows", Kind::kAllgather, rows);
  first.tensor.shape = second.tensor.shape = {rank + 1, 2};
  auto gathered = runtime.submit(0, {first, second});
  REQUIRE_OK(gathered.status());
  REQUIRE_OK(runtime.wait(0, *gathered));
  std::vector<float> expected;
  for (int r = 0; r < size; ++r) expected.insert(expected.end(), static_cast<size_t>(r + 1) * 2, static_cast<float>(r));
  for (size_t i : {0, 1}) {
    REQUIRE((*gathered)->result(i).shape == (std::vector<int64_t>{size * (size + 1) / 2, 2}));
    REQUIRE(floats((*gathered)->result(i)) == expected);
  }
  // Broadcast from the last rank, into other memory.
  std::vector<float> told(3, static_cast<float>(rank));
  Call broadcast = call_of("told", Kind::kBroadcast, told);
  broadcast.tensor.root = size - 1;
  auto heard = runtime.submit(0, {broadcast});
  REQUIRE_OK(heard.status());
  REQUIRE_OK(runtime.wait(0, *heard));
  REQUIRE(floats((*heard)->result(0)) == std::vector<float>(3, static_cast<float>(size - 1)));
  // Alltoall: r + 1 rows to rank r.
  std::vector<float> sent;
  std::vector<uint64_t> splits;
  for (int r = 0; r < size; ++r) {
    sent.insert(sent.end(), static_cast<size_t>(r + 1), static_cast<float>(rank * 100 + r));
    splits.push_back(static_cast<uint64_t>(r + 1));
  }
  Call alltoall = call_of("mail", Kind::kAlltoall, sent);
  alltoall.splits = splits;
  auto mail = runtime.submit(0, {alltoall});
  REQUIRE_OK(mail.status());
  REQUIRE_OK(runtime.wait(0, *mail));
  expected.clear();
  for (int r = 0; r < size; ++r) {
    expected.insert(expected.end(), static_cast<size_t>(rank + 1), static_cast<float>(r * 100 + rank));
  }
  REQUIRE(floats((*mail)->result(0)) == expected);
  REQUIRE((*mail)->result(0).received_splits ==
          std::vector<uint64_t>(static_cast<size_t>(size), static_cast<uint64_t>(rank + 1)));
  // Reducescatter of 5 rows, alone and as a group.
  std::vector<float> grid(5 * 3);
  std::iota(grid.begin(), grid.end(), 0.0F);
  Call scatter = call_of("grid", Kind::kReduceScatter, grid), again = call_of("grid 2", Kind::kReduceScatter, grid);
  scatter.tensor.shape = again.tensor.shape = {5, 3};
  auto scattered = runtime.submit(0, {scatter, again});
  REQUIRE_OK(scattered.status());
  REQUIRE_OK(runtime.wait(0, *scattered));
  const std::vector<uint64_t> share = engine::shares(5, size);
  uint64_t begin = 0;
  for (int r = 0; r < rank; ++r) begin += share[static_cast<size_t>(r)];
  expected.clear();
  for (uint64_t i = begin * 3; i < (begin + share[static_cast<size_t>(rank)]) * 3; ++i) {
    expected.push_back(static_cast<float>(i) * static_cast<float>(size));
  }
  for (size_t i : {0, 1}) REQUIRE(floats((*scattered)->result(i)) == expected);
  return leave_together(runtime);
}

TEST(Runtime, EveryOperationGivesWhatItSays) {
  for (int ranks : {1, 2, 3, 4}) {
    SCOPED_TRACE(text(ranks, " ranks"));
    auto job = start({.ranks = ranks}, every_operation);
    ASSERT_TRUE(job);
    expect_zero(*job);
  }
}

TEST(Runtime, AMismatchFailsOnAllRanksAndTheJobGoesOn) {
  auto job = start({.ranks = 3}, [](Runtime& runtime) {
    std::vector<float> values(runtime.rank() == 1 ? 5 : 4, 1.0F);
    const Status status = allreduce(runtime, "w", values);
    REQUIRE(status.code() == Code::kMismatch);
    REQUIRE(status.message().find("'w'") != std::string::npos);
    REQUIRE(status.message().find("rank 1") != std::string::npos);
    REQUIRE(values[0] == 1.0F);
    values.assign(4, 1.0F);
    REQUIRE_OK(allreduce(runtime, "w", values));
    REQUIRE(values == std::vector<float>(4, 3.0F));
    return leave_together(runtime);
  });
  ASSERT_TRUE(job);
  expect_zero(*job);
}

TEST(Runtime, ANameInUseIsRefusedAndNothingOfAGroupStays) {
  auto job = start({.ranks = 2}, [](Runtime& runtime) {
    std::vector<float> a(4, 1.0F), b(4, 1.0F), c(4, 1.0F);
    // The other rank waits with "a" until this one has tried everything, so "a" is pending.
    std::vector<float> go(1, 0.0F);
    if (runtime.rank() == 0) {
      auto first = runtime.submit(0, {in_place("a", a)});
      REQUIRE_OK(first.status());
      REQUIRE(runtime.submit(0, {in_place("a", b)}).status().code() == Code::kInvalidArgument);
      REQUIRE(runtime.submit(0, {in_place("b", b), in_place("a", c)}).status().code() == Code::kInvalidArgument);
      REQUIRE(runtime.submit(0, {in_place("c", b), in_place("c", c)}).status().code() == Code::kInvalidArgument);
      REQUIRE_OK(allreduce(runtime, "go", go));
      REQUIRE_OK(runtime.wait(0, *first));
    } else {
      REQUIRE_OK(allreduce(runtime, "go", go));
      REQUIRE_OK(allreduce(runtime, "a", a));
    }
    REQUIRE_OK(allreduce(runtime, "b", b));
    REQUIRE_OK(allreduce(runtime, "c", c));
    return leave_together(runtime);
  });
  ASSERT_TRUE(job);
  expect_zero(*job);
}

TEST(Runtime, AJoinedRankGivesTheIdentity) {
  auto job = start({.ranks = 3}, [](Runtime& runtime) {
    const auto mine = static_cast<float>(runtime.rank() + 1);
    if (runtime.rank() != 1) {
      std::vector<float> sum(4, mine), least(4, mine), product(4, mine), mean(4, mine);
      REQUIRE_OK(allreduce(runtime, "sum", sum));
      REQUIRE(sum == std::vector<float>(4, 4.0F));
      REQUIRE_OK(allreduce(runtime, "least", least, 0, Reduction::kMin));
      REQUIRE(least == std::vector<float>(4, 1.0F));
      REQUIRE_OK(allreduce(runtime, "product", product, 0, Reduction::kProduct));
      REQUIRE(product == std::vector<float>(4, 3.0F));
      REQUIRE_OK(allreduce(runtime, "mean", mean, 0, Reduction::kAverage));
      REQUIRE(mean == std::vector<float>(4, 4.0F / 3.0F));
      Call gather = call_of("gather", Kind::kAllgather, sum);
      auto handle = runtime.submit(0, {gather});
      REQUIRE_OK(handle.status());
      REQUIRE(runtime.wait(0, *handle).code() == Code::kMismatch);
    }
    auto joined = runtime.join();
    REQUIRE_OK(joined.status());
    REQUIRE_OK(runtime.wait(0, *joined));
    REQUIRE((*joined)->answer() != 1);
    std::vector<float> after(4, mine);
    REQUIRE_OK(allreduce(runtime, "after", after));
    REQUIRE(after == std::vector<float>(4, 6.0F));
    return leave_together(runtime);
  });
  ASSERT_TRUE(job);
  expect_zero(*job);
}

TEST(Runtime, ProcessSetsComeAndGoBesideTraffic) {
  auto job = start({.ranks = 4},
                   [](Runtime& runtime) {
                     const auto mine = static_cast<float>(runtime.rank() + 1);
                     const int pair = runtime.rank() % 2 == 0 ? 1 : 2;
                     for (int round = 0; round < 10; ++round) {
                       std::vector<float> all(100, mine), some(100, mine), added(100, mine);
                       auto everybody = runtime.submit(0, {in_place("all", all)});
                       REQUIRE_OK(everybody.status());
                       REQUIRE_OK(allreduce(runtime, "some", some, pair));
                       REQUIRE(some[0] == (pair == 1 ? 4.0F : 6.0F));
                       auto number = runtime.add_set({0, 1, 2});
                       REQUIRE_OK(number.status());
                       REQUIRE(*number == 3);
                       if (runtime.rank() < 3) {
                         REQUIRE_OK(allreduce(runtime, "added", added, *number));
                         REQUIRE(added[0] == 6.0F);
                       } else {
                         REQUIRE(allreduce(runtime, "added", added, *number).code() == Code::kInvalidArgument);
                       }
                       REQUIRE(runtime.add_set({2, 1, 0}).status().code() == Code::kInvalidArgument);
                       REQUIRE_OK(runtime.remove_set(*number));
                       REQUIRE_OK(runtime.wait(0, *everybody));
                       REQUIRE(all[0] == 10.0F);
                     }
                     REQUIRE(runtime.set_numbers() == (std::vector<int>{0, 1, 2}));
                     return leave_together(runtime);
                   },
                   {{0, 2}, {1, 3}});
  ASSERT_TRUE(job);
  expect_zero(*job);
}

TEST(Runtime, AProcessSetThatOneRankCannotMakeIsThereOnNone) {
  JobOptions options{.ranks = 3, .environment = {{"HORO_TRANSPORT", "tcp"}, {"HORO_INTERFACE", "127.0.0.1"}}};
  options.environment.insert({{"HORO_LOG_LEVEL", "off"}, {"HORO_TIMEOUT", "3s"}});
  auto job = start(options, [](Runtime& runtime) {
    rlimit usual{};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &usual) == 0);
    const int next = dup(0);
    close(next);
    const rlimit none{static_cast<rlim_t>(next), usual.rlim_max};
    if (runtime.rank() == 1) REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
    const Status refused = runtime.add_set({0, 1}).status();
    tell(refused.to_string() + "\n");
    REQUIRE(!refused.ok() && runtime.set_numbers() == std::vector<int>{0});
    REQUIRE(setrlimit(RLIMIT_NOFILE, &usual) == 0);
    auto made = runtime.add_set({0, 1});
    REQUIRE_OK(made.status());
    REQUIRE(*made == 1);
    std::vector<float> values(4, 1.0F);
    if (runtime.rank() < 2) REQUIRE_OK(allreduce(runtime, "in the set", values, 1));
    REQUIRE(values[0] == (runtime.rank() < 2 ? 2.0F : 1.0F));
    return leave_together(runtime);
  });
  ASSERT_TRUE(job);
  expect_zero(*job);
}

TEST(Runtime, EightThreadsHandInAtOnce) {
  auto job = start({.ranks = 2}, [](Runtime& runtime) {
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 8; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < 100; ++i) {
          std::vector<float> values(64, static_cast<float>(thread + i));
          if (!allreduce(runtime, text("thread ", thread), values).ok()) ++wrong;
          if (values != std::vector<float>(64, 2.0F * static_cast<float>(thread + i))) ++wrong;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    REQUIRE(wrong == 0);
    return leave_together(runtime);
  });
  ASSERT_TRUE(job);
  expect_zero(*job);
}

TEST(Runtime, AdasumOfAnyNumberOfRanks) {
  for (int ranks : {1, 2, 3, 4, 5}) {
    auto job = start({.ranks = ranks}, [](Runtime& runtime) {
      // Orthogonal gradients are added, equal ones averaged.
      std::vector<float> apart(10, 0.0F), same(1000, 2.0F);
      apart[static_cast<size_t>(runtime.rank())] = 1.0F;
      auto handle =
          runtime.submit(0, {in_place("apart", apart, Reduction::kAdasum), in_place("same", same, Reduction::kAdasum)});
      REQUIRE_OK(handle.status());
      REQUIRE_OK(runtime.wait(0, *handle));
      for (int i = 0; i < 10; ++i) REQUIRE(apart[static_cast<size_t>(i)] == (i < runtime.size() ? 1.0F : 0.0F));
      for (float value : same) REQUIRE(value == 2.0F);
      return leave_together(runtime);
    });
    ASSERT_TRUE(job);
    expect_zero(*job);
  }
}

TEST(Runtime, ALostRankFailsEverythingPendingOnTheOthers) {
  for (const char* transport : {"shm", "tcp"}) {
    auto job = start({.ranks = 3, .environment = {{"HORO_TRANSPORT", transport}}}, [](Runtime& runtime) {
      std::vector<float> values(4, 1.0F);
      REQUIRE_OK(allreduce(runtime, "before", values));
      tell("ready\n");
      const Status status = allreduce(runtime, runtime.rank() == 1 ? "never" : "after", values);
      REQUIRE(status.code() == Code::kPeerLost);
      REQUIRE(std::count(status.lost().begin(), status.lost().end(), 1) == 1);  // The other may have left by now.
      REQUIRE(runtime.submit(0, {in_place("later", values)}).status().code() == Code::kPeerLost);
      return 0;
    });
    ASSERT_TRUE(job);
    for (int rank : {0, 1, 2}) ASSERT_TRUE(job->next_line(rank, Deadline::after_seconds(20)).ok());
    job->signal(1, SIGKILL);
    auto codes = job->wait(Deadline::after_seconds(30));
    ASSERT_TRUE(codes.ok()) << codes.status();
    EXPECT_EQ(*codes, (std::vector<int>{0, -SIGKILL, 0})) << transport;
  }
}

TEST(Runtime, WhoHasJoinedFindsOutThatTheRestIsFrozen) {
  for (const int frozen : {0, 1}) {
    auto job = start({.ranks = 2, .environment = {{"HORO_FREEZE_TIMEOUT", "1s"}, {"HORO_LOG_LEVEL", "off"}}},
                     [frozen](Runtime& runtime) {
                       std::vector<float> values(4, 1.0F);
                       REQUIRE_OK(allreduce(runtime, "before", values));
                       if (runtime.rank() == frozen) raise(SIGSTOP);
                       auto joined = runtime.join(0);
                       REQUIRE(joined.ok());
                       const Status status = runtime.wait(0, *joined, Deadline::after_seconds(15));
                       tell(text(status.code() == Code::kPeerLost ? "found out" : status.to_string(), "\n"));
                       return 0;
                     });
    ASSERT_TRUE(job);
    auto line = job->next_line(1 - frozen, Deadline::after_seconds(25));
    EXPECT_EQ(line.ok() ? *line : line.status().to_string(), "found out");
    job->signal(frozen, SIGKILL);
    ASSERT_TRUE(job->wait(Deadline::after_seconds(15)).ok());
  }
}

// The first large batch needs a thread; what was handed in for it must not be lost with the attempt.
TEST(Runtime, WithoutAThreadForALargeBatchItFailsOnAllRanks) {
  if (sanitized()) GTEST_SKIP() << "the sanitizer needs memory of its own for it";
  auto job = start({.ranks = 2, .environment = {{"HORO_LOG_LEVEL", "off"}}}, [](Runtime& runtime) {
    std::vector<float> small(4, 1.0F), large(8 << 20, 1.0F);
    REQUIRE_OK(allreduce(runtime, "small", small));
    const rlimit none{1, RLIM_INFINITY};
    if (runtime.rank() == 1) {
      pthread_attr_t large_stack;  // Others may be at hand.
      pthread_attr_init(&large_stack);
      REQUIRE(pthread_attr_setstacksize(&large_stack, size_t{1} << 30) == 0);
      REQUIRE(pthread_setattr_default_np(&large_stack) == 0);
      pthread_attr_destroy(&large_stack);
      REQUIRE(setrlimit(RLIMIT_AS, &none) == 0);
    }
    auto handle = runtime.submit(0, {in_place("large", large)});
    const Status status = handle.ok() ? runtime.wait(0, *handle, Deadline::after_seconds(15)) : handle.status();
    const rlimit all{RLIM_INFINITY, RLIM_INFINITY};
    REQUIRE(setrlimit(RLIMIT_AS, &all) == 0);
    tell(status.to_string());
    REQUIRE(status.code() == Code::kUnavailable);
    return 0;
  });
  ASSERT_TRUE(job);
  auto codes = job->wait(Deadline::after_seconds(40));
  ASSERT_TRUE(codes.ok()) << codes.status();
  EXPECT_EQ(*codes, (std::vector<int>{0, 0})) << job->told(0) << job->told(1);
}

TEST(Runtime, AStallNamesTheRankThatIsMissing) {
  for (const char* transport : {"shm", "tcp"}) {
    Hold hold;
    auto job = start({.ranks = 3, .environment = {{"HORO_TRANSPORT", transport}, {"HORO_STALL_WARNING", "100ms"}}},
                     [&](Runtime& runtime) {
                       hold.take_part();
                       std::vector<float> values(4, 1.0F);
                       if (runtime.rank() == 0) tell_log();
                       if (runtime.rank() == 2) hold.wait(Deadline::after_seconds(20));
                       REQUIRE_OK(allreduce(runtime, "late", values));
                       return leave_together(runtime);
                     });
    ASSERT_TRUE(job);
    auto line = job->next_line(0, Deadline::after_seconds(15));
    ASSERT_TRUE(line.ok()) << line.status();
    EXPECT_NE(line->find("'late'"), std::string::npos) << *line;
    EXPECT_NE(line->find("rank 2"), std::string::npos) << *line;
    hold.let_go();
    expect_zero(*job);
  }
}

TEST(Runtime, StartsAndEndsAgainAndAgainInOneProcess) {
  auto job = Job::start_part({.ranks = 1}, [](const group::EngineOptions& options) {
    for (int i = 0; i < 100; ++i) {
      auto started = Runtime::start({.engine = options});
      if (!started.ok()) return 1;
      Runtime& runtime = **started;
      std::vector<float> values(4, 1.0F);
      REQUIRE_OK(allreduce(runtime, "x", values));
      runtime.shutdown();
      REQUIRE(runtime.submit(0, {in_place("y", values)}).status().code() == Code::kStopped);
    }
    return 0;
  });
  ASSERT_TRUE(job.ok()) << job.status();
  expect_zero(**job);
}

TEST(Runtime, ShutdownEndsThreadsThatWait) {
  auto job = start({.ranks = 2}, [](Runtime& runtime) {
    std::vector<float> values(4, 1.0F);
    if (runtime.rank() == 1) return leave_together(runtime);
    REQUIRE(leave_together(runtime) == 0);
    Status first, second;
    std::thread driver([&] { first = allreduce(runtime, "never", values); });
    std::vector<float> others(4, 1.0F);
    std::thread waiter([&] { second = allreduce(runtime, "neither", others); });
    runtime.shutdown();
    driver.join();
    waiter.join();
    REQUIRE(first.code() == Code::kStopped || first.code() == Code::kPeerLost);
    REQUIRE(second.code() == Code::kStopped || second.code() == Code::kPeerLost);
    return 0;
  });
  ASSERT_TRUE(job);
  expect_zero(*job);
}

TEST(Runtime, PrintsTheLatencyOfASmallCachedAllreduce) {
  auto job = start({.ranks = 2}, [](Runtime& runtime) {
    std::vector<double> times;
    std::vector<float> values(1, 1.0F);
    for (int i = 0; i < 2000; ++i) {
      values[0] = 1.0F;
      const Time begin = Clock::now();
      REQUIRE_OK(allreduce(runtime, "small", values));
      times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
      REQUIRE(values[0] == 2.0F);
    }
    std::sort(times.begin(), times.end());
    if (runtime.rank() == 0)
      std::printf("4 B allreduce, negotiated: median %.1f us, p99 %.1f us\n", times[1000], times[1980]);
    std::fflush(stdout);
    return leave_together(runtime);
  });
  ASSERT_TRUE(job);
  expect_zero(*job);
}

}  // namespace
}  // namespace horo::test
