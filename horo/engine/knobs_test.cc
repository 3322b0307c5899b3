// What each knob does, seen from outside: ranks are threads of this program, with real groups between them.
#include "horo/engine/knobs.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <future>
#include <latch>
#include <mutex>
#include <set>
#include <thread>

#include "horo/base/build.h"
#include "horo/base/cgroup.h"
#include "horo/base/text.h"
#include "horo/collective/selector.h"
#include "horo/engine/runtime.h"
#include "horo/group/knobs.h"
#include "horo/rendezvous/knobs.h"
#include "horo/rendezvous/memory_store.h"

namespace horo::engine {
namespace {

using Variables = Environment::Variables;

/// Lines that engines wrote to their log.
class Lines {
 public:
  void add(std::string_view line) {
    const std::lock_guard lock(mutex_);
    all_ += text(line, "\n");
    changed_.notify_all();
  }
  /// Until a line has one of `words`. False when none has for so long.
  bool await(std::initializer_list<std::string_view> words, double seconds) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] {
      return std::any_of(words.begin(), words.end(), [&](auto one) { return all_.find(one) != std::string::npos; });
    });
  }
  bool has(std::string_view words) const {
    const std::lock_guard lock(mutex_);
    return all_.find(words) != std::string::npos;
  }
  std::string all() const {
    const std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string all_;
};

using Body = std::function<void(Runtime&)>;

/// Starts a job and runs `body` on every rank. `own` is what a rank sets beside `shared`. Failures to start are told.
std::vector<Status> run(int size, const Variables& shared, const Body& body, Lines* log = nullptr,
                        const std::function<Variables(int rank)>& own = {}) {
  auto store = std::make_shared<rendezvous::MemoryStore>();
  std::vector<Status> outcomes(static_cast<size_t>(size));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      Environment environment(Variables{{"HORO_TIMEOUT", "30s"}, {"HORO_STAGING", "8MiB"}});
      environment = environment.with(shared);
      if (own) environment = environment.with(own(rank));
      auto config = Config::read({rendezvous::kKnobs, group::kKnobs, kKnobs}, environment);
      ASSERT_TRUE(config.ok()) << config.status();
      group::EngineOptions options{.rank = rank, .size = size, .store = store, .config = *config};
      if (log != nullptr) options.log_sink = [log](LogLevel, std::string_view line) { log->add(line); };
      auto runtime = Runtime::start({.engine = std::move(options)});
      outcomes[static_cast<size_t>(rank)] = runtime.status();
      if (!runtime.ok()) return;
      body(**runtime);
      (*runtime)->shutdown();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return outcomes;
}

Call sum_of(std::string name, std::vector<float>& values) {
  Call call;
  call.tensor.name = std::move(name);
  call.tensor.kind = Kind::kAllreduce;
  call.tensor.dtype = DType::kF32;
  call.tensor.shape = {static_cast<int64_t>(values.size())};
  call.input = call.output = reinterpret_cast<std::byte*>(values.data());
  return call;
}

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

/// Waits for the others, so that nobody leaves early.
void meet(Runtime& runtime) {
  std::vector<float> one(1);
  auto handle = runtime.submit(0, {sum_of("meet", one)});
  ASSERT_TRUE(handle.ok()) << handle.status();
  EXPECT_TRUE(runtime.wait(0, *handle, Deadline::after_seconds(30)).ok());
}

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

TEST(GroupKnobs, LogLevelIsTheLeastThatIsShown) {
  for (const char* level : {"warning", "info"}) {
    Lines log;
    run(2, {{"HOROVOD_LOG_LEVEL", level}, {"HORO_UNKNOWN_THING", "1"}}, meet, &log);
    EXPECT_EQ(log.has(" info "), std::string_view(level) == "info") << log.all();
    EXPECT_TRUE(log.has(" warning ")) << "of the unknown variable: " << log.all();
  }
}

TEST(GroupKnobs, LogHideTimeLeavesTheTimeOut) {
  for (const char* name : {"HORO_LOG_HIDE_TIME", "HOROVOD_LOG_HIDE_TIME"}) {
    Lines log;
    run(
        1, {{name, "1"}, {"HORO_LOG_LEVEL", "info"}}, [](Runtime&) {}, &log);
    EXPECT_EQ(log.all().rfind("horo info [rank 0", 0), 0u) << log.all();
  }
  Lines log;
  run(
      1, {{"HORO_LOG_LEVEL", "info"}}, [](Runtime&) {}, &log);
  EXPECT_EQ(log.all().rfind("20", 0), 0u) << "the year: " << log.all();
}

/// Where this process's threads of a name may run: "0-3".
std::set<std::string> places_of(std::string_view thread) {
  std::set<std::string> places;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (read_small_file(task.path() / "comm") != std::string(thread)) continue;
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      constexpr std::string_view kKey = "Cpus_allowed_list:\t";
      if (line.rfind(kKey, 0) == 0) places.insert(line.substr(kKey.size()));
    }
  }
  return places;
}

std::vector<int> allowed_cores() {
  cpu_set_t set;
  sched_getaffinity(0, sizeof set, &set);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

TEST(GroupKnobs, ThreadAffinityKeepsTheThreadsOfEachRankOnItsCore) {
  const std::vector<int> cores = allowed_cores();
  const std::string first = text(cores.front()), last = text(cores.back());
  std::mutex one_looks;
  const auto look = [&](Runtime& runtime, const std::set<std::string>& expected) {
    meet(runtime);
    std::vector<float> many(1 << 22);  // Too much for the waiting thread: the executor's own thread runs it.
    auto handle = runtime.submit(0, {sum_of("many", many)});
    ASSERT_TRUE(handle.ok() && runtime.wait(0, *handle).ok());
    {
      const std::lock_guard lock(one_looks);
      for (const char* thread : {"horo-control", "horo-loop", "horo-run"})
        EXPECT_EQ(places_of(thread), expected) << thread;
    }
    meet(runtime);
  };
  run(2, {{"HOROVOD_THREAD_AFFINITY", last}}, [&](Runtime& runtime) { look(runtime, {last}); });
  run(2, {{"HORO_THREAD_AFFINITY", text(first, ",", last)}}, [&](Runtime& runtime) { look(runtime, {first, last}); });
  EXPECT_EQ(allowed_cores(), cores) << "the program's own threads are left alone";
  const auto message = [](const char* list, int ranks) {
    return run(ranks, {{"HORO_THREAD_AFFINITY", list}, {"HORO_TIMEOUT", "2s"}}, [](Runtime&) {})[0].message();
  };
  EXPECT_NE(message("0,one", 1).find("HORO_THREAD_AFFINITY holds '0,one'"), std::string::npos) << message("0,one", 1);
  EXPECT_NE(message("4000", 1).find("core 4000"), std::string::npos) << message("4000", 1);
  EXPECT_NE(message("0,0", 3).find("2 cores for 3 ranks"), std::string::npos);
}

size_t open_sockets() {
  size_t count = 0;
  for (const auto& one : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    count += std::filesystem::read_symlink(one.path(), gone).string().rfind("socket:", 0) == 0 ? 1 : 0;
  }
  return count;
}

TEST(GroupKnobs, StreamsIsHowManyConnectionsAPairHas) {
  const auto sockets = [](const char* streams) {
    std::atomic<size_t> seen{0};
    run(2, {{"HORO_TRANSPORT", "tcp"}, {"HORO_STREAMS", streams}}, [&](Runtime& runtime) {
      meet(runtime);
      EXPECT_EQ(runtime.engine().world().transport_name(), "tcp");
      if (runtime.rank() == 0) seen = open_sockets();
      meet(runtime);
    });
    return seen.load();
  };
  const size_t one = sockets("1");
  EXPECT_EQ(sockets("5"), one + 4 * 2) << "both ends are here";
}

size_t keepers() {
  size_t found = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream children(task.path() / "children");
    for (int pid = 0; children >> pid;) ++found;  // Nothing else in this program has children.
  }
  return found;
}

TEST(GroupKnobs, KeeperIsThereForPeersOnOtherHosts) {
  if (build_info().sanitizers == "thread") GTEST_SKIP() << "TSan cannot follow a process that shares memory";
  const auto seen = [](const Variables& variables) {
    std::atomic<size_t> most{0};
    run(2, variables, [&](Runtime& runtime) {
      meet(runtime);
      if (runtime.rank() == 0) most = keepers();
      meet(runtime);
    });
    return most.load();
  };
  EXPECT_EQ(seen({{"HORO_TRANSPORT", "tcp"}}), 2u) << "one for each rank";
  EXPECT_EQ(seen({{"HORO_TRANSPORT", "tcp"}, {"HORO_KEEPER", "0"}}), 0u);
  EXPECT_EQ(seen({}), 0u) << "shared memory tells of deaths sooner";
  EXPECT_EQ(keepers(), 0u);
}

uint64_t shared_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("RssShmem:", 0) == 0) return std::stoull(line.substr(9)) * 1024;
  }
  return 0;
}

TEST(GroupKnobs, StagingBoundsTheMemoryOfOperations) {
  const auto used = [](const char* staging) {
    std::atomic<uint64_t> most{0};
    run(2, {{"HORO_STAGING", staging}, {"HORO_TRANSPORT", "shm"}}, [&](Runtime& runtime) {
      std::vector<float> data(8 << 20);
      auto operation = collective::Operation{};
      operation.kind = collective::Kind::kAllreduce;
      operation.dtype = DType::kF32;
      operation.count = data.size();
      auto* bytes = reinterpret_cast<std::byte*>(data.data());
      EXPECT_TRUE(runtime.engine().world().run(operation, bytes, bytes).ok());
      if (runtime.rank() == 0) most = shared_bytes();
      meet(runtime);
    });
    return most.load();
  };
  const uint64_t little = used("4MiB"), much = used("64MiB");
  EXPECT_GT(much, little + (16 << 20)) << bytes_text(little) << " and " << bytes_text(much);
  const auto own = [](int rank) { return Variables{{"HORO_STAGING", rank == 0 ? "4MiB" : "8MiB"}}; };
  const auto told = run(
      2, {{"HORO_TIMEOUT", "3s"}}, [](Runtime&) {}, nullptr, own);
  EXPECT_NE(told[0].message().find("HORO_STAGING"), std::string::npos) << told[0];
}

/// An operation and hosts for which freedom changes the choice of the algorithm.
struct Choice {
  std::vector<int> hosts;
  collective::Operation operation;
  std::string_view bound, free;
};

std::optional<Choice> where_it_matters() {
  Choice choice;
  choice.operation.kind = collective::Kind::kAllreduce;
  choice.operation.dtype = DType::kF32;
  for (const std::vector<int>& hosts :
       std::vector<std::vector<int>>{{0, 1, 2, 3}, {0, 0, 1, 1}, {0, 0, 0, 1}, {0, 1, 2, 3, 4, 5, 6, 7}}) {
    choice.hosts = hosts;
    for (choice.operation.count = 1; choice.operation.count < (1 << 22); choice.operation.count *= 2) {
      collective::Table table;
      const collective::Shape shape(hosts);
      choice.bound = (*collective::select(choice.operation, shape, table))->name;
      table.deterministic = false;
      choice.free = (*collective::select(choice.operation, shape, table))->name;
      if (choice.bound != choice.free) return choice;
    }
  }
  return std::nullopt;
}

TEST(GroupKnobs, DeterministicForbidsOrdersThatDependOnTheSize) {
  const auto choice = where_it_matters();
  ASSERT_TRUE(choice);
  std::printf("  %zu ranks, %llu elements: %s, else %s\n", choice->hosts.size(),
              static_cast<unsigned long long>(choice->operation.count), std::string(choice->bound).c_str(),
              std::string(choice->free).c_str());
  for (const char* value : {"1", "0"}) {
    const auto own = [&](int rank) {
      return Variables{{"HORO_HOST_ID", text("host", choice->hosts[static_cast<size_t>(rank)])}};
    };
    const auto body = [&](Runtime& runtime) {
      std::vector<float> data(choice->operation.count);
      auto* bytes = reinterpret_cast<std::byte*>(data.data());
      EXPECT_TRUE(runtime.engine().world().run(choice->operation, bytes, bytes).ok());
      const std::string_view expected = std::string_view(value) == "1" ? choice->bound : choice->free;
      EXPECT_EQ(runtime.engine().world().algorithm_name(), expected);
      meet(runtime);
    };
    const Variables shared{{"HORO_DETERMINISTIC", value}, {"HORO_TRANSPORT", "tcp"}};
    for (const Status& status : run(static_cast<int>(choice->hosts.size()), shared, body, nullptr, own)) {
      EXPECT_TRUE(status.ok()) << status;
    }
  }
}

/// Whether somebody listens at this IPv4 address, as /proc/net/tcp writes it.
bool is_listened_at(const std::string& hex) {
  std::ifstream table("/proc/net/tcp");
  for (std::string line; std::getline(table, line);) {
    if (line.find(" " + hex + ":") < 12 && line.find(" 0A ") != std::string::npos) return true;
  }
  return false;
}

TEST(GroupKnobs, InterfaceIsWhereOthersReachARank) {
  for (const char* name : {"HORO_INTERFACE", "HOROVOD_GLOO_IFACE"}) {
    const auto body = [](Runtime& runtime) {
      EXPECT_TRUE(is_listened_at("4D00007F"));  // 127.0.0.77
      meet(runtime);
    };
    for (const Status& status : run(2, {{name, "127.0.0.77"}}, body)) EXPECT_TRUE(status.ok()) << status;
  }
  const auto absent = run(2, {{"HORO_INTERFACE", "nothing0"}, {"HORO_TIMEOUT", "1s"}}, [](Runtime&) {});
  EXPECT_NE(absent[0].message().find("nothing0"), std::string::npos) << absent[0];
}

TEST(GroupKnobs, RanksWithEqualHostIdsShareMemory) {
  for (const char* other : {"a", "b"}) {
    const auto own = [&](int rank) { return Variables{{"HORO_HOST_ID", rank == 0 ? "a" : other}}; };
    const auto body = [&](Runtime& runtime) {
      const bool same = std::string_view(other) == "a";
      EXPECT_EQ(runtime.position().local_size, same ? 2 : 1);
      EXPECT_EQ(runtime.engine().world().transport_name(), same ? "shm" : "tcp");
      meet(runtime);
    };
    for (const Status& status : run(2, {}, body, nullptr, own)) EXPECT_TRUE(status.ok()) << status;
  }
}

}  // namespace
}  // namespace horo::engine
