// Nothing is left behind: descriptors, memory, shared segments, processes.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <set>
#include <thread>

#include "tests/job.h"
#include "tests/process.h"
#include "tests/workload.h"

#include "horo/base/text.h"
#include "horo/engine/knobs.h"
#include "horo/engine/runtime.h"
#include "horo/group/knobs.h"
#include "horo/rendezvous/knobs.h"
#include "horo/rendezvous/memory_store.h"

namespace horo::test {
namespace {

using collective::Kind;
using collective::Operation;

Config config_of(const Environment::Variables& variables) {
  auto config = Config::read({group::kKnobs, rendezvous::kKnobs, engine::kKnobs}, Environment(variables));
  HORO_CHECK(config.ok(), config.status().to_string());
  return *config;
}

std::set<std::string> shared_memory_files() {
  std::set<std::string> names;
  DIR* folder = opendir("/dev/shm");
  while (dirent* entry = folder == nullptr ? nullptr : readdir(folder)) names.insert(entry->d_name);
  if (folder != nullptr) closedir(folder);
  return names;
}

/// The least that was in use after any of `turns` turns: a thread that ends just now still holds something.
struct Floor {
  size_t heap = SIZE_MAX;
  size_t maps = SIZE_MAX;
};
template <class Turn>
Floor floor_of(uint64_t turns, const Turn& turn) {
  Floor least;
  for (uint64_t i = 0; i < turns && !testing::Test::HasFatalFailure(); ++i) {
    std::thread(turn).join();  // What the allocator keeps at hand for a thread, it gives back at the thread's end.
    least.heap = std::min(least.heap, heap_bytes());
    least.maps = std::min(least.maps, mappings());
  }
  return least;
}

/// What every turn leaves behind raises the floor. In use, not resident: one lost pointer in every turn shows.
template <class Turn>
void expect_no_leak(uint64_t turns, const Turn& turn) {
  constexpr double kMostBytes = 8;      // Less than any allocation.
  constexpr double kMostOfAll = 2'048;  // Once, however many turns: a table that grows to its size.
  const auto shared = shared_memory_files();
  const uint64_t stretch = turns / 4 + 1;
  floor_of(stretch, turn);  // Fills what libraries fill once.
  const size_t descriptors = open_descriptors();
  const Floor before = floor_of(stretch, turn);
  const Floor after = floor_of(turns - 2 * stretch, turn);
  const double grown = static_cast<double>(after.heap) - static_cast<double>(before.heap);
  std::printf("  %llu turns: %+.0f bytes of heap over the last %llu, %zu mappings (%zu before), %zu descriptors\n",
              static_cast<unsigned long long>(turns), grown, static_cast<unsigned long long>(turns - 2 * stretch),
              after.maps, before.maps, open_descriptors());
  EXPECT_LE(grown, std::max(kMostOfAll, kMostBytes * static_cast<double>(turns - 2 * stretch)));
  EXPECT_EQ(open_descriptors(), descriptors);
  if (!sanitized()) {
    EXPECT_LE(after.maps, before.maps) << "segments, stacks or pages stay mapped";
  }
  EXPECT_EQ(shared_memory_files(), shared);
}

TEST(Leak, OfAThousandEnginesOfOneRank) {
  const Config config = config_of({});
  expect_no_leak(test_count("TEST_STARTS", 1000), [&] {
    auto engine = group::Engine::start({.rank = 0, .size = 1, .config = config});
    ASSERT_TRUE(engine.ok()) << engine.status();
    ASSERT_TRUE(sum_works((*engine)->world(), 100));
  });
}

/// Two engines of one process, each with a thread of its own, meet, reduce and part.
void meet_and_part(const Config& config) {
  auto store = std::make_shared<rendezvous::MemoryStore>();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      auto engine = group::Engine::start({.rank = rank, .size = 2, .store = store, .config = config});
      ASSERT_TRUE(engine.ok()) << engine.status();
      EXPECT_TRUE(sum_works((*engine)->world(), 1000));
      EXPECT_TRUE(sum_works((*engine)->world(), 100'000));
      auto group = (*engine)->create_group({0, 1}, Deadline::after_seconds(20));
      ASSERT_TRUE(group.ok()) << group.status();
      EXPECT_TRUE(sum_works(**group, 10));
      (*engine)->remove_group(*group);
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(Leak, OfTwoEnginesInOneProcessOverSharedMemory) {
  const Config config = config_of({{"HORO_STAGING", "8MiB"}});
  expect_no_leak(test_count("TEST_STARTS", 200, 1000), [&] { meet_and_part(config); });
}

TEST(Leak, OfTwoEnginesInOneProcessOverSockets) {
  const Config config = config_of({{"HORO_TRANSPORT", "tcp"}, {"HORO_INTERFACE", "127.0.0.1"}});
  expect_no_leak(test_count("TEST_STARTS", 200, 1000), [&] { meet_and_part(config); });
}

/// A sum of ones by name, on the thread that waits or, if it is large, on the executor's.
void sum_by_name(engine::Runtime& runtime, int set, size_t count) {
  std::vector<float> values(count, 1.0F);
  engine::Call call;
  call.tensor = {.name = "sum", .kind = engine::Kind::kAllreduce, .dtype = DType::kF32};
  call.tensor.shape = {static_cast<int64_t>(count)};
  call.output = reinterpret_cast<std::byte*>(values.data());
  call.input = call.output;
  auto handle = runtime.submit(set, {call});
  ASSERT_TRUE(handle.ok()) << handle.status();
  EXPECT_TRUE(runtime.wait(set, *handle, Deadline::after_seconds(20)).ok());
  EXPECT_EQ(values, std::vector<float>(count, 2.0F));
}

TEST(Leak, OfFiveHundredRuntimesOfTwoRanksInOneProcess) {
  const Config config = config_of({{"HORO_STAGING", "8MiB"}});
  expect_no_leak(test_count("TEST_STARTS", 500), [&] {
    auto store = std::make_shared<rendezvous::MemoryStore>();
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.emplace_back([&, rank] {
        auto started = engine::Runtime::start({.engine = {.rank = rank, .size = 2, .store = store, .config = config}});
        ASSERT_TRUE(started.ok()) << started.status();
        sum_by_name(**started, 0, 10);
        sum_by_name(**started, 0, 100'000);
        (*started)->shutdown();
      });
    }
    for (std::thread& rank : ranks) rank.join();
  });
}

/// This process is rank 0 and loses rank 1, which is killed in the middle of its operations.
void lose_a_peer(const char* transport) {
  int pipes[2], told[2];
  ASSERT_TRUE(pipe2(pipes, O_CLOEXEC) == 0 && pipe2(told, O_CLOEXEC) == 0);
  const Environment environment(Environment::Variables{
      {"HORO_INTERFACE", "127.0.0.1"}, {"HORO_TRANSPORT", transport}, {"HORO_LOG_LEVEL", "off"}});
  const pid_t peer = fork();  // Before this process has threads.
  if (peer == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    char store[256] = {};
    if (read(pipes[0], store, sizeof store - 1) <= 0) _exit(3);
    auto options = options_of_rank(1, 2, environment, store, nullptr);
    auto engine = group::Engine::start(std::move(*options));
    if (!engine.ok() || write(told[1], "x", 1) != 1) _exit(4);
    while (sum_works((*engine)->world(), 100'000)) {
    }
    _exit(5);
  }
  ASSERT_GT(peer, 0);  // A signal to -1 would reach everybody.
  auto key = net::Key::none();
  auto store = rendezvous::TcpStoreServer::start(
      net::Address::loopback(), {.job = "test", .key = std::make_shared<const net::Key>(std::move(*key))});
  ASSERT_TRUE(store.ok()) << store.status();
  const std::string address = (*store)->address().to_string();
  ASSERT_GT(write(pipes[1], address.data(), address.size()), 0);
  auto options = options_of_rank(0, 2, environment, address, nullptr);
  ASSERT_TRUE(options.ok()) << options.status();
  auto engine = group::Engine::start(std::move(*options));
  ASSERT_TRUE(engine.ok()) << engine.status();
  char ready = 0;
  EXPECT_EQ(read(told[0], &ready, 1), 1);
  EXPECT_TRUE(sum_works((*engine)->world(), 100'000));
  kill(peer, SIGKILL);
  while (sum_works((*engine)->world(), 100'000)) {
  }
  EXPECT_EQ((*engine)->members(), std::vector<int>{0});
  int status = 0;
  waitpid(peer, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status)) << status;
  for (int fd : {pipes[0], pipes[1], told[0], told[1]}) close(fd);
}

TEST(Leak, OfAnEngineWhosePeerIsKilled) {
  for (const char* transport : {"shm", "tcp"}) {
    expect_no_leak(test_count("TEST_STARTS", 100, 1000), [&] { lose_a_peer(transport); });
  }
}

TEST(Leak, OfKilledJobs) {
  for (const char* transport : {"shm", "tcp"}) {
    JobOptions options{.ranks = 3, .environment = {{"HORO_INTERFACE", "127.0.0.1"}, {"HORO_TRANSPORT", transport}}};
    options.environment["HORO_LOG_LEVEL"] = "off";
    expect_no_leak(test_count("TEST_STARTS", 40, 1000), [&] {
      Hold hold;
      auto job = Job::start(options, [&](group::Engine& engine) {
        hold.take_part();
        if (!sum_works(engine.world(), 100'000)) return 3;
        tell("ready\n");
        while (sum_works(engine.world(), 100'000)) {
        }
        return 0;
      });
      ASSERT_TRUE(job.ok()) << job.status();
      for (int rank = 0; rank < 3; ++rank) ASSERT_TRUE((*job)->next_line(rank, Deadline::after_seconds(20)).ok());
      for (int rank = 0; rank < 3; ++rank) (*job)->signal(rank, SIGKILL);
      auto codes = (*job)->wait(Deadline::after_seconds(10));
      ASSERT_TRUE(codes.ok()) << codes.status();
    });
  }
}

}  // namespace
}  // namespace horo::test
