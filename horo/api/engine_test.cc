#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "horo/api/rank_threads_testing.h"

namespace {

/// The code and the words of a status that must be a failure; frees it.
std::pair<horo_code, std::string> outcome(horo_status* status) {
  std::pair<horo_code, std::string> result(horo_status_code(status), horo_status_message(status));
  horo_status_free(status);
  return result;
}

TEST(ApiEngine, WithNothingSetIsAJobOfOneRank) {
  horo::Engine engine;
  EXPECT_EQ(engine.rank(), 0);
  EXPECT_EQ(engine.size(), 1);
  EXPECT_EQ(engine.local_rank(), 0);
  EXPECT_EQ(engine.local_size(), 1);
  EXPECT_EQ(engine.members(), std::vector<int>{0});
  EXPECT_EQ(engine.world().size(), 1);
  std::vector<float> values{3, 4};
  engine.world().allreduce(values.data(), values.size(), HORO_AVERAGE);
  EXPECT_EQ(values, (std::vector<float>{3, 4}));
  engine.world().barrier();
  engine.group({0}).barrier();
}

TEST(ApiEngine, NullArgumentsAreErrorsAndNotCrashes) {
  horo_engine* engine = nullptr;
  horo_engine_options options = HORO_ENGINE_OPTIONS_INIT;
  EXPECT_EQ(outcome(horo_engine_start(nullptr, &engine)).first, HORO_INVALID_ARGUMENT);
  EXPECT_EQ(outcome(horo_engine_start(&options, nullptr)).first, HORO_INVALID_ARGUMENT);
  EXPECT_EQ(engine, nullptr);
  options.struct_size = 0;
  const auto [code, words] = outcome(horo_engine_start(&options, &engine));
  EXPECT_EQ(code, HORO_INVALID_ARGUMENT);
  EXPECT_NE(words.find("HORO_ENGINE_OPTIONS_INIT"), std::string::npos) << words;
  void* memory = nullptr;
  EXPECT_EQ(outcome(horo_buffer_allocate(nullptr, 10, &memory)).first, HORO_INVALID_ARGUMENT);
  horo_group* group = nullptr;
  EXPECT_EQ(outcome(horo_group_create(nullptr, nullptr, 0, &group)).first, HORO_INVALID_ARGUMENT);
  horo_buffer_free(nullptr, nullptr);
  horo_group_destroy(nullptr);
  horo_request_destroy(nullptr);
  horo_engine_shutdown(nullptr);
  horo_engine_destroy(nullptr);
}

TEST(ApiEngine, OptionsOfAnOlderProgramAreUnderstood) {
  // What comes after `size` did not exist when this program was compiled; whatever lies there must not be read.
  horo_engine_options options = HORO_ENGINE_OPTIONS_INIT;
  options.struct_size = offsetof(horo_engine_options, store);
  options.rank = 0;
  options.size = 1;
  options.store = reinterpret_cast<const char*>(1);
  options.settings = reinterpret_cast<const char* const*>(1);
  horo::Engine engine(options);
  EXPECT_EQ(engine.size(), 1);

  horo_operation operation = HORO_OPERATION_INIT;
  operation.kind = HORO_ALLREDUCE;
  operation.dtype = HORO_F32;
  operation.count = 2;
  operation.struct_size = offsetof(horo_operation, prescale);
  operation.prescale = 1000;
  operation.counts = nullptr;
  float values[] = {1, 2};
  engine.world().run(operation, values, values);
  EXPECT_EQ(values[1], 2) << "a scale that the older program does not know of was applied";
}

TEST(ApiEngine, WrongPlacesAndSettingsAreNamed) {
  const auto start = [](int rank, int size, const char* setting) {
    const char* settings[] = {setting, nullptr};
    horo_engine_options options = HORO_ENGINE_OPTIONS_INIT;
    options.rank = rank;
    options.size = size;
    options.settings = settings;
    horo_engine* engine = nullptr;
    auto result = outcome(horo_engine_start(&options, &engine));
    EXPECT_EQ(engine, nullptr);
    return result;
  };
  const auto expect = [](const std::pair<horo_code, std::string>& result, const char* named) {
    EXPECT_EQ(result.first, HORO_INVALID_ARGUMENT) << result.second;
    EXPECT_NE(result.second.find(named), std::string::npos) << result.second;
  };
  expect(start(3, 2, nullptr), "HORO_RANK is 3");
  expect(start(0, -1, nullptr), "HORO_SIZE is not set");
  expect(start(0, 2, nullptr), "HORO_STORE is not set");
  expect(start(0, 1, "HORO_TIMEOUT"), "'HORO_TIMEOUT'");
  expect(start(0, 1, "HORO_TIMEOUT=soon"), "soon");
  expect(start(0, 1, "HORO_TRANSPORT=pigeon"), "pigeon");
}

TEST(ApiEngine, AnUnknownSettingIsAWarningInTheCallersLog) {
  struct Lines {
    std::mutex mutex;
    std::string text;
  } lines;
  const char* settings[] = {"HORO_TIMEUOT=10s", nullptr};
  horo_engine_options options = HORO_ENGINE_OPTIONS_INIT;
  options.settings = settings;
  options.log_context = &lines;
  options.log_sink = [](void* context, int, const char* line) {
    auto* all = static_cast<Lines*>(context);
    std::lock_guard lock(all->mutex);
    all->text += line;
  };
  horo::Engine engine(options);
  std::lock_guard lock(lines.mutex);
  EXPECT_NE(lines.text.find("HORO_TIMEUOT"), std::string::npos) << lines.text;
  EXPECT_NE(lines.text.find("HORO_TIMEOUT"), std::string::npos) << lines.text;
}

TEST(ApiEngine, BuffersAreWritableAndCanBeFreedInAnyOrder) {
  for (const char* setting : {"HORO_TRANSPORT=auto", "HORO_TRANSPORT=tcp"}) {
    horo::api::run_ranks(2,
                         [](horo::Engine& engine) {
                           auto first = engine.allocate<uint64_t>(1000);
                           auto second = engine.allocate<uint64_t>(1 << 20);
                           second[(1 << 20) - 1] = 1;
                           first.reset();
                           auto third = engine.allocate<uint64_t>(1000);
                           std::fill_n(third.get(), 1000, uint64_t{5});
                           engine.world().allreduce(third.get(), 1000);
                           if (third[999] != 10) throw std::runtime_error("the sum is " + std::to_string(third[999]));
                           horo::check(horo_memory_register(engine.get(), second.get(), 8 << 20));
                           horo::check(horo_memory_unregister(engine.get(), second.get()));
                         },
                         {setting});
  }
}

TEST(ApiEngine, ABufferLargerThanMemoryIsAnError) {
  for (const char* setting : {"HORO_TRANSPORT=auto", "HORO_TRANSPORT=tcp"}) {
    horo::api::run_ranks(
        2,
        [](horo::Engine& engine) {
          for (const size_t bytes : {size_t{1} << 50, SIZE_MAX - 1, SIZE_MAX}) {
            void* memory = nullptr;
            EXPECT_EQ(outcome(horo_buffer_allocate(engine.get(), bytes, &memory)).first, HORO_UNAVAILABLE) << bytes;
            EXPECT_EQ(memory, nullptr);
          }
          EXPECT_THROW(engine.allocate<double>(SIZE_MAX / 2), horo::Error);
          engine.world().barrier();
        },
        {setting});
  }
}

TEST(ApiEngine, BuffersBeginAtPagesAndEmptyOnesAtPlacesOfTheirOwn) {
  const auto check = [](horo::Engine& engine) {
    auto empty = engine.allocate<std::byte>(0);
    auto one = engine.allocate<std::byte>(1);
    auto other = engine.allocate<std::byte>(5000);
    for (const std::byte* memory : {empty.get(), one.get(), other.get()}) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 4096, 0u);
    }
    EXPECT_NE(empty.get(), one.get());
    EXPECT_NE(one.get(), other.get());
    empty.reset();
    EXPECT_NE(engine.allocate<std::byte>(1).get(), one.get());
  };
  horo::api::run_ranks(1, check);
  horo::api::run_ranks(2, check);
  horo::api::run_ranks(2, check, {"HORO_TRANSPORT=tcp"});
}

TEST(ApiEngine, AfterShutdownCallsSayThatItWasStopped) {
  horo::Engine engine;
  horo::Group world = engine.world();
  engine.shutdown();
  engine.shutdown();
  EXPECT_EQ(outcome(horo_barrier(world.get())).first, HORO_STOPPED);
}

TEST(ApiEngine, NoGroupIsMadeAfterTheEnd) {
  horo::Engine engine;
  engine.shutdown();
  horo_group* group = nullptr;
  const int rank = 0;
  EXPECT_EQ(outcome(horo_group_create(engine.get(), &rank, 1, &group)).first, HORO_STOPPED);
}

TEST(ApiEngine, AForkedChildIsToldSoAndDoesNotDisturbItsParent) {
  horo::Engine engine;
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = horo_status_code(horo_barrier(horo_engine_world(engine.get()))) == HORO_FORKED;
    _exit(refused ? 0 : 1);
  }
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 0);
  engine.world().barrier();
}

/// In a child: whether what it has opened and mapped since the fork is still its own when the engine is gone there.
bool outlives(horo_engine* engine) {
  std::vector<int> opened;
  for (int i = 0; i < 100; ++i) opened.push_back(dup(STDERR_FILENO));
  // Where the parent's memory for all that the machine could hold lies, if anywhere.
  constexpr size_t kBytes = size_t{8} << 30;
  void* mapped = mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  horo_engine_shutdown(engine);
  horo_engine_destroy(engine);
  std::array<unsigned char, 1> resident{};
  const auto* bytes = static_cast<const char*>(mapped);
  const bool all_mapped = mapped != MAP_FAILED && msync(mapped, kBytes, MS_ASYNC) == 0 &&
                          mincore(mapped, 1, resident.data()) == 0 && bytes[0] == 0 && bytes[kBytes - 1] == 0;
  return all_mapped &&
         std::all_of(opened.begin(), opened.end(), [](int fd) { return fd >= 0 && fcntl(fd, F_GETFD) >= 0; });
}

TEST(ApiEngine, AForkedChildThatDestroysItLosesNothingOfItsOwn) {
  horo::api::run_ranks(2, [](horo::Engine& engine) {
    if (engine.rank() == 0) {
      const pid_t child = fork();
      if (child == 0) _exit(outlives(engine.get()) ? 0 : 1);
      int state = 0;
      ASSERT_EQ(waitpid(child, &state, 0), child);
      EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 0) << state;
    }
    engine.world().barrier();
  });
}

}  // namespace
