// Starting again after a start that failed.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <latch>

#include "horo/api/rank_threads_testing.h"

namespace {

using horo::Error;
using horo::Runtime;

std::string error_of(const horo_runtime_options& options) {
  try {
    Runtime runtime(options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ApiRejoin, ARankThatGaveUpComesAgainWhileAnotherWaits) {
  std::latch gave_up(1);
  horo::api::run_threads(3, [&](horo_engine_options engine) {
    horo_runtime_options options = HORO_RUNTIME_OPTIONS_INIT;
    options.engine = &engine;
    if (engine.rank == 0) {
      // The last rank does not come before this one has given up: with a short limit of its own, twice.
      horo_engine_options hasty = engine;
      std::vector<const char*> settings;
      for (const char* const* one = engine.settings; *one != nullptr; ++one) settings.push_back(*one);
      settings.insert(settings.end(), {"HORO_TIMEOUT=300ms", nullptr});
      hasty.settings = settings.data();
      horo_runtime_options short_of_time = HORO_RUNTIME_OPTIONS_INIT;
      short_of_time.engine = &hasty;
      for (int attempt = 0; attempt < 2; ++attempt) {
        const std::string why = error_of(short_of_time);
        EXPECT_NE(why.find("did not join"), std::string::npos) << why;
      }
      gave_up.count_down();
    }
    if (engine.rank == 2) gave_up.wait();
    Runtime runtime(options);
    float value = 1;
    runtime.allreduce("v", &value, 1);
    EXPECT_EQ(value, 3.0F);
    runtime.barrier();
  });
}

TEST(ApiRejoin, AWrongProcessSetIsCorrectedAndTheJobIsJoined) {
  horo::api::run_threads(2, [](const horo_engine_options& engine) {
    const int members[] = {0, 5};
    const int* ranks = members;
    const size_t size = 2;
    horo_runtime_options options = HORO_RUNTIME_OPTIONS_INIT;
    options.engine = &engine;
    options.set_ranks = &ranks;
    options.set_sizes = &size;
    options.set_count = 1;
    const std::string why = error_of(options);
    EXPECT_NE(why.find("rank 5"), std::string::npos) << why;
    options.set_count = 0;
    Runtime runtime(options);
    float value = 1;
    runtime.allreduce("v", &value, 1);
    EXPECT_EQ(value, 2.0F);
    runtime.barrier();
  });
}

TEST(ApiRejoin, TheKeyOfTheLauncherIsThereForTheSecondAttempt) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  const std::vector<char> secret(32, 'k');
  ASSERT_EQ(write(ends[1], secret.data(), secret.size()), 32);
  close(ends[1]);
  const std::string key = "HORO_KEY_FD=" + std::to_string(ends[0]);
  const char* settings[] = {key.c_str(), "HORO_INTERFACE=127.0.0.1", "HORO_TIMEOUT=200ms", nullptr};
  horo_engine_options engine = HORO_ENGINE_OPTIONS_INIT;
  engine.rank = 0;
  engine.size = 2;
  engine.store = "127.0.0.1:0";
  engine.job = "rejoin";
  engine.settings = settings;
  horo_runtime_options options = HORO_RUNTIME_OPTIONS_INIT;
  options.engine = &engine;
  for (int attempt = 0; attempt < 2; ++attempt) {
    const std::string why = error_of(options);
    EXPECT_FALSE(why.empty());
    EXPECT_EQ(why.find("key"), std::string::npos) << why;
  }
  engine.size = 1;
  EXPECT_EQ(error_of(options), "");
}

}  // namespace
