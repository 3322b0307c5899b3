// What each knob of the engine does, seen from outside.
#include "horo/engine/knobs.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <latch>

#include "horo/engine/knobs_testing.h"

namespace horo::engine {
namespace {

/// Handed in and told when it is done. Nobody waits for it, as horo sees it: a thread that waits closes the window.
class Watched {
 public:
  Watched(Runtime& runtime, std::vector<Call> calls) {
    auto told = std::make_shared<std::promise<Status>>();
    outcome_ = told->get_future();
    const auto handle =
        runtime.submit(0, std::move(calls), [told](const Submission& done) { told->set_value(done.status()); });
    EXPECT_TRUE(handle.ok()) << handle.status();
  }
  bool done() const { return outcome_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
  void expect_ok() {
    ASSERT_EQ(outcome_.wait_for(std::chrono::seconds(30)), std::future_status::ready);
    const Status status = outcome_.get();
    EXPECT_TRUE(status.ok()) << status;
  }

 private:
  std::future<Status> outcome_;
};

/// How many operations on data `groups` groups of `members` tensors of 1000 bytes take.
uint64_t operations(const Variables& variables, int groups, int members) {
  std::atomic<uint64_t> seen{0};
  const auto body = [&](Runtime& runtime) {
    std::vector<std::vector<float>> data(static_cast<size_t>(groups * members), std::vector<float>(250, 1.0F));
    const uint64_t before = runtime.engine().world().operations();
    std::vector<Watched> watched;
    for (int one = 0; one < groups; ++one) {
      std::vector<Call> calls;
      for (int member = 0; member < members; ++member) {
        calls.push_back(
            sum_of(text("t", one, ".", member),
                   data[static_cast<size_t>(one) * static_cast<size_t>(members) + static_cast<size_t>(member)]));
      }
      watched.emplace_back(runtime, std::move(calls));
    }
    for (Watched& one : watched) one.expect_ok();
    if (runtime.rank() == 0) seen = runtime.engine().world().operations() - before;
    meet(runtime);
  };
  for (const Status& status : run(2, variables, body)) EXPECT_TRUE(status.ok()) << status;
  return seen;
}

TEST(EngineKnobs, FusionThresholdSaysHowMuchRunsTogether) {
  const auto with = [](const char* threshold) {
    return operations({{"HORO_GATHER_WINDOW", "1s"}, {"HORO_FUSION_THRESHOLD", threshold}}, 12, 1);
  };
  EXPECT_EQ(with("0"), 12u);
  EXPECT_EQ(with("1MiB"), 1u);
  const uint64_t some = with("3000");
  EXPECT_GE(some, 4u);
  EXPECT_LT(some, 12u);
  EXPECT_EQ(operations({{"HOROVOD_CYCLE_TIME", "1000"}, {"HOROVOD_FUSION_THRESHOLD", "0"}}, 4, 1), 4u);
}

TEST(EngineKnobs, DisableGroupFusionKeepsGroupsApart) {
  const Variables window{{"HORO_GATHER_WINDOW", "1s"}};
  EXPECT_EQ(operations(window, 3, 4), 1u);
  const Variables apart{{"HORO_GATHER_WINDOW", "1s"}, {"HORO_DISABLE_GROUP_FUSION", "1"}};
  EXPECT_EQ(operations(apart, 3, 4), 3u);
}

/// Of a tensor that nobody waits for, alone in its window.
double seconds_of_one(const Variables& variables) {
  std::atomic<double> seconds{0};
  run(2, variables, [&](Runtime& runtime) {
    std::vector<float> values(4);
    const Time before = Clock::now();
    Watched(runtime, {sum_of("alone", values)}).expect_ok();
    if (runtime.rank() == 0) seconds = std::chrono::duration<double>(Clock::now() - before).count();
    meet(runtime);
  });
  return seconds;
}

TEST(EngineKnobs, GatherWindowIsHowLongATensorWaitsForOthers) {
  EXPECT_GE(seconds_of_one({{"HORO_GATHER_WINDOW", "1s"}}), 0.95);
  EXPECT_GE(seconds_of_one({{"HOROVOD_CYCLE_TIME", "1000"}}), 0.95) << "the old name is in milliseconds";
  // While one job's window stays open, another's that is never open lets a tensor through.
  std::latch other_is_through(1);
  run(2, {{"HORO_GATHER_WINDOW", "10min"}}, [&](Runtime& runtime) {
    std::vector<float> values(4);
    Watched patient(runtime, {sum_of("patient", values)});
    if (runtime.rank() == 0) {
      seconds_of_one({{"HORO_GATHER_WINDOW", "0"}});
      EXPECT_FALSE(patient.done());
      other_is_through.count_down();
    }
    other_is_through.wait();
    meet(runtime);
    patient.expect_ok();
  });
}

TEST(EngineKnobs, CacheCapacityIsHowManyTensorsAreRemembered) {
  for (const char* capacity : {"0", "64"}) {
    run(2, {{"HORO_CACHE_CAPACITY", capacity}}, [&](Runtime& runtime) {
      for (int i = 0; i < 10; ++i) meet(runtime);
      const uint64_t by_number = runtime.metrics().find(0)->announced_by_number.get();
      if (std::string_view(capacity) == "0") {
        EXPECT_EQ(by_number, 0u);
      } else {
        EXPECT_GE(by_number, 5u);
      }
    });
  }
}

/// Rank 1 comes late, when the log speaks of the tensor or after so long; gives what became of rank 0's operation.
Status stall(const Variables& variables, Lines& log, double seconds = 20) {
  Status outcome;
  const auto body = [&](Runtime& runtime) {
    std::vector<float> values(4);
    if (runtime.rank() == 1) log.await({"rank 0 ended", "'late'"}, seconds);
    if (runtime.rank() == 1 && variables.contains("HORO_STALL_ABORT")) log.await({"rank 0 ended"}, seconds);
    auto handle = runtime.submit(0, {sum_of("late", values)});
    if (!handle.ok()) return;
    const Status status = runtime.wait(0, *handle, Deadline::after_seconds(30));
    if (runtime.rank() != 0) return;
    outcome = status;
    log.add("rank 0 ended");
  };
  run(2, variables, body, &log);
  return outcome;
}

TEST(EngineKnobs, StallWarningIsWhenAMissingRankIsNamed) {
  for (const auto& [name, value] :
       Variables{{"HORO_STALL_WARNING", "100ms"}, {"HOROVOD_STALL_CHECK_TIME_SECONDS", "1"}}) {
    Lines log;
    EXPECT_TRUE(stall({{name, value}}, log).ok());
    EXPECT_TRUE(log.has("'late'") && log.has("rank 1")) << log.all();
  }
}

TEST(EngineKnobs, StallCheckDisableSaysNothing) {
  Lines log;
  EXPECT_TRUE(stall({{"HORO_STALL_WARNING", "100ms"}, {"HORO_STALL_CHECK_DISABLE", "1"}}, log, 0.6).ok());
  EXPECT_FALSE(log.has("'late'")) << log.all();
}

TEST(EngineKnobs, StallAbortEndsTheWait) {
  Lines log;
  const Status outcome = stall({{"HORO_STALL_WARNING", "50ms"}, {"HORO_STALL_ABORT", "300ms"}}, log);
  EXPECT_FALSE(outcome.ok());
  EXPECT_NE(outcome.message().find("HORO_STALL_ABORT"), std::string::npos) << outcome;
  const auto wrong = run(1, {{"HORO_STALL_ABORT", "10s"}}, [](Runtime&) {});
  EXPECT_NE(wrong[0].message().find("longer than HORO_STALL_WARNING"), std::string::npos) << wrong[0];
}

}  // namespace
}  // namespace horo::engine
