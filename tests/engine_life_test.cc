// The engine over time: disagreements that it survives, sets that come and go, silence, memory, stalls that end it.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <random>
#include <thread>

#include "tests/process.h"
#include "tests/runtime_job.h"
#include "tests/workload.h"

#include "horo/base/text.h"

namespace horo::test {
namespace {

using std::chrono::milliseconds;

/// What rank 1 asks for otherwise than the others, and the two values that its error must name.
struct Disagreement {
  const char* what;
  void (*change)(std::vector<Call>& calls);
  const char* common;
  const char* odd;
  Kind kind = Kind::kAllreduce;
};

const Disagreement kDisagreements[] = {
    {"data types", [](auto& calls) { calls[0].tensor.dtype = DType::kI32; }, "f32", "i32"},
    {"shapes",
     [](auto& calls) {
       calls[0].tensor.shape = {2, 2};
     },
     "[4]", "[2, 2]"},
    {"operations",
     [](auto& calls) {
       for (Call& call : calls) call.tensor.kind = Kind::kAllgather;
     },
     "allreduce", "allgather"},
    {"reductions", [](auto& calls) { calls[0].tensor.reduction = Reduction::kMax; }, "sum", "max"},
    {"prescale factors", [](auto& calls) { calls[0].tensor.prescale = 0.25; }, "1", "0.25"},
    {"postscale factors", [](auto& calls) { calls[1].tensor.postscale = 3; }, "1", "3"},
    {"devices", [](auto& calls) { calls[0].tensor.place = engine::Place::kDevice; }, "host memory", "device memory"},
    {"root ranks",
     [](auto& calls) {
       for (Call& call : calls) call.tensor.root = 2;
     },
     "0", "2", Kind::kBroadcast},
    {"names of group members", [](auto& calls) { std::swap(calls[0], calls[1]); }, "'a'", "'b'"},
    {"numbers of tensors in a group", [](auto& calls) { calls.pop_back(); }, "2", "1"},
};

int disagree(Runtime& runtime, const Disagreement& about) {
  std::vector<float> a(4, 1.0F), b(4, 1.0F);
  std::vector<Call> calls{in_place("a", a), in_place("b", b)};
  for (Call& call : calls) call.tensor.kind = about.kind;
  if (runtime.rank() == 1) about.change(calls);
  auto handle = runtime.submit(0, calls);
  REQUIRE_OK(handle.status());
  const Status status = runtime.wait(0, *handle);
  const auto says = [&](const std::string& words) {
    if (status.message().find(words) != std::string::npos) return true;
    std::fprintf(stderr, "no %s in: %s\n", words.c_str(), status.message().c_str());
    return false;
  };
  REQUIRE(status.code() == Code::kMismatch);
  REQUIRE(says(text("different ", about.what)) && says("tensor '"));
  REQUIRE(says(text(about.common, " on ranks 0, 2")) && says(text(about.odd, " on rank 1")));
  REQUIRE(a == std::vector<float>(4, 1.0F) && b == a);
  // The same names are free again, and the job goes on.
  REQUIRE_OK(allreduce(runtime, "a", a));
  REQUIRE_OK(allreduce(runtime, "b", b));
  REQUIRE(a == std::vector<float>(4, 3.0F) && b == a);
  return 0;
}

TEST(EngineLife, EveryDisagreementIsToldToAllRanksAndTheJobGoesOn) {
  for (const char* transport : {"shm", "tcp"}) {
    auto job = start({.ranks = 3, .environment = {{"HORO_TRANSPORT", transport}}}, [](Runtime& runtime) {
      for (int round = 0; round < 3; ++round) {  // What is known by a number must be found to differ as well.
        for (const Disagreement& about : kDisagreements) REQUIRE(disagree(runtime, about) == 0);
      }
      return leave_together(runtime);
    });
    ASSERT_TRUE(job);
    expect_zero(*job);
  }
}

TEST(EngineLife, TheRootsOfASetThatDisagreeAreNamedAsRanks) {
  auto job = start({.ranks = 4},
                   [](Runtime& runtime) {
                     if (runtime.rank() > 0) {
                       std::vector<float> values(4, 1.0F);
                       Call call = call_of("w", Kind::kBroadcast, values);
                       call.output = bytes_of(values);
                       call.tensor.root = runtime.rank() == 3 ? 3 : 1;
                       auto handle = runtime.submit(1, {call});
                       REQUIRE_OK(handle.status());
                       const Status status = runtime.wait(1, *handle);
                       // Who came first is named first.
                       REQUIRE(status.message().find("1 on ranks 1, 2") != std::string::npos);
                       REQUIRE(status.message().find("3 on rank 3") != std::string::npos);
                     }
                     return leave_together(runtime);
                   },
                   {{1, 2, 3}});
  ASSERT_TRUE(job);
  expect_zero(*job);
}

TEST(EngineLife, SetsComeAndGoWhileOthersAreBusy) {
  auto job = start({.ranks = 4},
                   [](Runtime& runtime) {
                     const int pair = 1 + runtime.rank() % 2;
                     std::atomic<bool> over{false};
                     std::atomic<int> wrong{0}, rounds{0};
                     std::thread traffic([&] {
                       for (bool last = false; !last; ++rounds) {
                         // All of a set stop after the same round: the first of them decides.
                         std::vector<float> more(1, over ? 1.0F : 0.0F), values(5000, 1.0F);
                         if (!allreduce(runtime, "more", more, pair, Reduction::kMax).ok()) ++wrong;
                         if (!allreduce(runtime, "traffic", values, pair).ok()) ++wrong;
                         if (values != std::vector<float>(5000, 2.0F)) ++wrong;
                         last = more[0] > 0 || wrong > 0;
                       }
                     });
                     const auto work = [&] {
                       for (int round = 0; round < 25; ++round) {
                         auto number = runtime.add_set({0, 1, 3});
                         REQUIRE_OK(number.status());
                         std::vector<float> values(100, 1.0F), all(100, 1.0F);
                         if (runtime.rank() != 2) REQUIRE_OK(allreduce(runtime, "x", values, *number));
                         REQUIRE(values[99] == (runtime.rank() == 2 ? 1.0F : 3.0F));
                         REQUIRE_OK(allreduce(runtime, "all", all));
                         REQUIRE(all[0] == 4.0F);
                         REQUIRE_OK(runtime.remove_set(*number));
                       }
                       return 0;
                     };
                     const int code = work();
                     over = true;
                     traffic.join();
                     REQUIRE(wrong == 0 && rounds > 0);
                     return code != 0 ? code : leave_together(runtime);
                   },
                   {{0, 2}, {1, 3}});
  ASSERT_TRUE(job);
  expect_zero(*job);
}

TEST(EngineLife, AnIdleEngineSendsNothingAndWakesNobody) {
  if (sanitized()) GTEST_SKIP() << "the sanitizers have threads that wake up";
  for (const char* transport : {"shm", "tcp"}) {
    SCOPED_TRACE(transport);
    Hold hold;
    auto job = start({.ranks = 3, .environment = {{"HORO_TRANSPORT", transport}}},
                     [&](Runtime& runtime) {
                       hold.take_part();
                       std::vector<float> small(1, 1.0F), large(100'000, 1.0F);
                       for (int i = 0; i < 3; ++i) {
                         REQUIRE_OK(allreduce(runtime, "small", small));
                         REQUIRE_OK(allreduce(runtime, "large", large));  // On the executor's thread.
                         if (runtime.rank() != 1) REQUIRE_OK(allreduce(runtime, "set", small, 1));
                       }
                       REQUIRE(leave_together(runtime) == 0);
                       tell("ready\n");
                       REQUIRE(hold.wait(Deadline::after_seconds(30)));
                       return 0;
                     },
                     {{0, 2}});
    ASSERT_TRUE(job);
    for (int rank = 0; rank < 3; ++rank) ASSERT_TRUE(job->next_line(rank, Deadline::after_seconds(20)).ok());
    // What a rank does after it has told that it is ready ends soon; then nothing more may happen.
    EXPECT_EQ(job->next_line(0, Deadline::after(milliseconds(300))).status().code(), Code::kTimeout);
    std::vector<Use> before;
    for (int rank = 0; rank < 3; ++rank) before.push_back(use_of(job->pid(rank)));
    EXPECT_EQ(job->next_line(0, Deadline::after(milliseconds(1000))).status().code(), Code::kTimeout);
    for (int rank = 0; rank < 3; ++rank) {
      const Use after = use_of(job->pid(rank));
      EXPECT_LE(after.cpu_ms - before[static_cast<size_t>(rank)].cpu_ms, 1.0) << "rank " << rank;
      EXPECT_EQ(after.switches - before[static_cast<size_t>(rank)].switches, 0) << "rank " << rank << " woke up";
    }
    hold.let_go();
    expect_zero(*job);
  }
}

TEST(EngineLife, NothingGrowsWithTheNumberOfOperations) {
  const uint64_t turns = test_count("TEST_TURNS", 2000, 60'000);
  constexpr size_t kLatecomers = 6;
  auto job = start({.ranks = 2}, [=](Runtime& runtime) {
    std::vector<std::vector<float>> values;
    for (size_t i = 0; i < 16; ++i) values.emplace_back(1 + i * 700, 1.0F);
    std::vector<float> large(3 << 20);  // For the executor's thread: it begins with the first that needs it.
    REQUIRE_OK(allreduce(runtime, "large", large));
    size_t heap = 0, maps = 0, descriptors = 0;
    for (uint64_t turn = 0; turn < turns; ++turn) {
      if (turn == turns / 4) heap = heap_bytes(), maps = mappings(), descriptors = open_descriptors();
      std::vector<Handle> handles;
      for (size_t i = 0; i < values.size(); ++i) {
        // Some are always new to the ranks: what is remembered of them must be forgotten again.
        auto handle = runtime.submit(0, {in_place(i == 0 ? text("new ", turn) : text("known ", i), values[i])});
        REQUIRE_OK(handle.status());
        handles.push_back(*handle);
      }
      for (const Handle& handle : handles) REQUIRE_OK(runtime.wait(0, handle));
    }
    const auto grown = static_cast<int64_t>(heap_bytes()) - static_cast<int64_t>(heap);
    tell(text(grown, " bytes of heap more\n"));
    REQUIRE(grown < 300'000);  // The cache was not full after a quarter; a leak of 16 bytes per operation would show.
    // A second scratch area or a thread's own arena comes when it is first needed, which is a matter of timing; each is
    // two mappings. One that is left behind in every turn would be a hundred times as many.
    REQUIRE(mappings() <= maps + 2 * kLatecomers || sanitized());
    REQUIRE(open_descriptors() == descriptors);
    return leave_together(runtime);
  });
  ASSERT_TRUE(job);
  expect_zero(*job, 300);
  std::printf("  %llu operations: %s", static_cast<unsigned long long>(turns * 16), job->told(0).c_str());
}

TEST(EngineLife, AStallEndsInAnErrorOfAllRanksWhereThatIsAskedFor) {
  for (const char* transport : {"shm", "tcp"}) {
    SCOPED_TRACE(transport);
    auto job = start({.ranks = 4,
                      .environment = {{"HORO_TRANSPORT", transport},
                                      {"HORO_STALL_WARNING", "100ms"},
                                      {"HORO_STALL_ABORT", "400ms"}}},
                     [](Runtime& runtime) {
                       std::vector<float> values(4, 1.0F);
                       const Status status = allreduce(runtime, runtime.rank() == 2 ? "other" : "late", values);
                       const bool late = status.message().find("'late'") != std::string::npos &&
                                         status.message().find("rank 2") != std::string::npos;
                       const bool other = status.message().find("'other'") != std::string::npos;
                       REQUIRE(status.code() == Code::kTimeout && (late || other));
                       REQUIRE(status.message().find("HORO_STALL_ABORT") != std::string::npos);
                       return 0;  // At once: nobody may take a leaver for the reason.
                     });
    ASSERT_TRUE(job);
    expect_zero(*job);
  }
}

}  // namespace
}  // namespace horo::test
