// What each knob of groups does, seen from outside.
#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <latch>
#include <optional>
#include <set>
#include <span>

#include "horo/base/build.h"
#include "horo/base/cgroup.h"
#include "horo/collective/selector.h"
#include "horo/engine/knobs_testing.h"
#include "horo/transport/process.h"

namespace horo::engine {
namespace {

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

TEST(GroupKnobs, ReadPeersIsWhetherRanksReadEachOthersMemory) {
  // In one process, in which a rank may read whatever it could see as well, if the system reads for anybody.
  if (!transport::can_be_read(std::as_bytes(std::span("x")))) GTEST_SKIP() << "here no process may read even itself";
  for (const char* reads : {"1", "0"}) {
    Lines log;
    run(2, {{"HORO_READ_PEERS", reads}, {"HORO_LOG_LEVEL", "debug"}}, meet, &log);
    EXPECT_EQ(log.has("do not share can be read"), std::string_view(reads) == "1") << log.all();
    EXPECT_EQ(log.has("do not share cannot be read"), std::string_view(reads) == "0") << log.all();
  }
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
