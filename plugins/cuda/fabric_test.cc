// Operations by NCCL with several ranks, without a GPU: the plugin as it is, on stand-ins of the driver and of NCCL
// (plugins/cuda/testing). What is tested is who calls what, when, and what ranks hear of it; no result of a GPU.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <latch>
#include <mutex>
#include <numeric>
#include <thread>

#include "plugins/cuda/testing/standin_nccl.h"

#include "horo/base/text.h"
#include "horo/device/plugin.h"
#include "horo/engine/knobs.h"
#include "horo/engine/runtime.h"
#include "horo/group/knobs.h"
#include "horo/rendezvous/knobs.h"
#include "horo/rendezvous/memory_store.h"

/// For the leak sanitizer: the driver keeps contexts, modules and functions as long as the process lives, and NCCL a
/// communicator that was aborted; so do their stand-ins.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions() {  // NOLINT: its name.
  return "leak:standin_";
}

namespace horo::engine {
namespace {

using collective::Kind;
using cuda::standin::Behaviour;
using group::Group;
using Variables = Environment::Variables;

/// The plugin and what it runs on. Opened in this order, once.
struct Plugin {
  const horo_device_plugin* table = nullptr;
  decltype(&horo_standin_begin) begin = nullptr;
  decltype(&horo_standin_calls) calls = nullptr;

  static const Plugin& get() {
    static const Plugin plugin = [] {
      const std::string folder = HORO_BINARY_DIR;
      const auto open = [&](const std::string& name) {
        void* library = dlopen((folder + name).c_str(), RTLD_NOW);
        EXPECT_NE(library, nullptr) << dlerror();
        return library;
      };
      open("/tests/standins/libhoro_standin_driver.so");
      open("/tests/standins/libhoro_standin_nvrtc.so");
      void* nccl = open("/tests/standins/libhoro_standin_nccl.so");
      void* own = open("/libhoro_cuda.so");
      const auto entry = reinterpret_cast<const horo_device_plugin* (*)()>(dlsym(own, HORO_DEVICE_ENTRY));
      return Plugin{entry(), reinterpret_cast<decltype(&horo_standin_begin)>(dlsym(nccl, "horo_standin_begin")),
                    reinterpret_cast<decltype(&horo_standin_calls)>(dlsym(nccl, "horo_standin_calls"))};
    }();
    return plugin;
  }
};

struct Job {
  Variables settings;
  Behaviour behaviour = {};
  std::mutex mutex = {};
  std::vector<std::string> warnings = {};
};

/// Starts ranks as threads, and runs `body` on each.
void run(int size, Job& job, const std::function<void(Runtime&)>& body) {
  Plugin::get().begin(&job.behaviour);
  auto store = std::make_shared<rendezvous::MemoryStore>();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      const Variables usual{{"HORO_TIMEOUT", "30s"},
                            {"HORO_STAGING", "8MiB"},
                            {"HORO_KERNEL_CACHE", "none"},
                            {"HORO_DEVICE_PATH", "nccl"}};
      auto config =
          Config::read({rendezvous::kKnobs, group::kKnobs, kKnobs}, Environment(usual).with(Variables(job.settings)));
      ASSERT_TRUE(config.ok()) << config.status();
      group::EngineOptions options{.rank = rank, .size = size, .store = store, .config = *config};
      options.device_plugin = Plugin::get().table;
      options.log_sink = [&job](LogLevel, std::string_view line) {
        std::lock_guard lock(job.mutex);
        job.warnings.emplace_back(line);
      };
      auto runtime = Runtime::start({.engine = std::move(options)});
      ASSERT_TRUE(runtime.ok()) << runtime.status();
      body(**runtime);
      (*runtime)->shutdown();
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

collective::Operation operation_of(Kind kind, uint64_t count, int device) {
  collective::Operation operation;
  operation.kind = kind;
  operation.dtype = DType::kF32;
  operation.count = count;
  operation.where.device = device;
  return operation;
}

/// Whole numbers: every order of summing them gives the same.
std::vector<float> values(uint64_t count, int rank) {
  std::vector<float> all(count);
  for (uint64_t i = 0; i < count; ++i) all[i] = static_cast<float>((i * 7 + static_cast<uint64_t>(rank) * 3) % 101);
  return all;
}

const std::byte* in(const std::vector<float>& all) { return reinterpret_cast<const std::byte*>(all.data()); }
std::byte* out(std::vector<float>& all) { return reinterpret_cast<std::byte*>(all.data()); }

Status allreduce(Group& group, std::vector<float>& data, int device) {
  return group.run(operation_of(Kind::kAllreduce, data.size(), device), in(data), out(data));
}

bool contains(std::string_view all, std::string_view words) { return all.find(words) != all.npos; }

/// On the device and on the host: the same.
void compare(Runtime& runtime, collective::Operation operation, bool in_place = false) {
  Group& world = runtime.engine().world();
  const auto room = static_cast<uint64_t>(1000 * runtime.size());
  std::vector<float> given = values(room, runtime.rank()), expected(room), got(room);
  collective::Operation on_host = operation;
  on_host.where = {};
  ASSERT_TRUE(world.run(on_host, in(given), out(expected)).ok());
  if (in_place) got = given;
  const Status status = world.run(operation, in_place ? in(got) : in(given), out(got));
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(world.device_path_name(), "nccl");
  const auto results = static_cast<std::ptrdiff_t>(operation.result_count(runtime.rank()));
  EXPECT_TRUE(std::equal(got.begin(), got.begin() + results, expected.begin()))
      << transport::name(operation.kind) << " op " << static_cast<int>(operation.op) << " times " << operation.prescale
      << (in_place ? " in place" : "") << " on rank " << runtime.rank() << " of " << runtime.size() << ": " << got[1]
      << " is not " << expected[1];
}

TEST(FabricGroup, EveryOperationGivesWhatItGivesOnTheHost) {
  for (int ranks : {1, 2, 3}) {
    Job job{.settings = {{"HORO_DEVICE_PATH", "nccl"}}};
    run(ranks, job, [](Runtime& runtime) {
      const auto members = static_cast<size_t>(runtime.size());
      for (Kind kind : {Kind::kAllreduce, Kind::kReduce, Kind::kReduceScatter, Kind::kBroadcast, Kind::kAllgather,
                        Kind::kGather, Kind::kScatter, Kind::kAlltoall}) {
        for (bool even : {true, false}) {
          collective::Operation operation = operation_of(kind, 300, runtime.rank());
          operation.root = runtime.size() - 1;
          operation.counts.assign(members, 100);
          if (!even && kind != Kind::kAlltoall) operation.counts[0] = 3;
          operation.receive_counts = operation.counts;
          compare(runtime, operation);
        }
      }
      for (Kind kind : {Kind::kAllreduce, Kind::kReduceScatter, Kind::kBroadcast, Kind::kAllgather}) {
        collective::Operation operation = operation_of(kind, 300, runtime.rank());
        operation.counts.assign(members, 100);
        compare(runtime, operation, true);
      }
      for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
        collective::Operation scaled = operation_of(Kind::kAllreduce, 300, runtime.rank());
        scaled.op = op;
        compare(runtime, scaled);
        scaled.prescale = 0.5;
        scaled.postscale = 4;
        compare(runtime, scaled);
      }
    });
  }
}

TEST(FabricGroup, AnAverageOfOneRankIsWrittenToItsEnd) {
  Job job;
  run(1, job, [](Runtime& runtime) {
    for (uint64_t count : {1ULL, 7ULL, 4097ULL, 70'001ULL, 262'145ULL}) {  // 17 of 70,001 are what NCCL leaves out.
      for (Kind kind : {Kind::kAllreduce, Kind::kReduce, Kind::kReduceScatter}) {
        collective::Operation operation = operation_of(kind, count, 0);
        operation.counts = {count};
        operation.op = ReduceOp::kAverage;
        std::vector<float> given = values(count, 0), got(count, -1.0F);
        ASSERT_TRUE(runtime.engine().world().run(operation, in(given), out(got)).ok());
        EXPECT_EQ(got, given) << transport::name(kind) << " of " << count;
        EXPECT_EQ(runtime.engine().world().device_path_name(), "nccl");
      }
    }
  });
}

TEST(FabricGroup, EveryMemberMakesTheSameCallsInTheSameOrder) {
  Job job;
  run(2, job, [](Runtime& runtime) {
    Group& world = runtime.engine().world();
    std::vector<float> data(8, 1.0F), all(12);
    ASSERT_TRUE(allreduce(world, data, runtime.rank()).ok());
    ASSERT_TRUE(allreduce(world, data, runtime.rank()).ok());
    collective::Operation gather = operation_of(Kind::kAllgather, 0, runtime.rank());
    gather.counts = {4, 8};
    ASSERT_TRUE(world.run(gather, in(data), out(all)).ok());
    collective::Operation exchange = operation_of(Kind::kAlltoall, 0, runtime.rank());
    exchange.counts = exchange.receive_counts = {4, 4};
    ASSERT_TRUE(world.run(exchange, in(data), out(all)).ok());
  });
  for (int member : {0, 1}) {
    EXPECT_EQ(Plugin::get().calls(member),
              text("CommInitRankConfig of 2 on device ", member,
                   "\nAllReduce 8 of 7, op 0\nAllReduce 8 of 7, op 0\n"
                   "Broadcast 16 of 1, peer 0\nBroadcast 32 of 1, peer 1\nGroupEnd\n"
                   "Send 16 of 1, peer 0\nRecv 16 of 1, peer 0\nSend 16 of 1, peer 1\nRecv 16 of 1, peer 1\nGroupEnd\n"
                   "CommFinalize\nCommDestroy\n"));
  }
}

TEST(FabricGroup, ACommunicatorIsMadeForEachSetAndItsDevices) {
  Job job;
  run(2, job, [](Runtime& runtime) {
    std::vector<float> data(8, 1.0F);
    auto second = runtime.engine().create_group({0, 1});
    ASSERT_TRUE(second.ok()) << second.status();
    for (int turn = 0; turn < 2; ++turn) {
      ASSERT_TRUE(allreduce(runtime.engine().world(), data, runtime.rank()).ok());
      ASSERT_TRUE(allreduce(**second, data, runtime.rank()).ok());
      ASSERT_TRUE(allreduce(**second, data, runtime.rank() + 2).ok());
    }
    EXPECT_EQ(data, std::vector<float>(8, 64.0F));
  });
  const std::string calls = Plugin::get().calls(1);
  size_t made = 0;
  for (size_t at = 0; (at = calls.find("CommInit", at)) != calls.npos; ++at) ++made;
  EXPECT_EQ(made, 3u) << calls;
}

TEST(FabricGroup, WhatNcclDoesNotHaveTakesAnotherWay) {
  Job job;
  run(2, job, [](Runtime& runtime) {
    Group& world = runtime.engine().world();
    std::vector<float> data = values(8, runtime.rank());
    collective::Operation operation = operation_of(Kind::kAllreduce, 8, runtime.rank());
    operation.op = ReduceOp::kMax;  // Of floats: NaN would get lost.
    ASSERT_TRUE(world.run(operation, in(data), out(data)).ok());
    EXPECT_EQ(world.device_path_name(), "staged");
    ASSERT_TRUE(allreduce(world, data, runtime.rank()).ok());
    EXPECT_EQ(world.device_path_name(), "nccl");
  });
}

TEST(FabricGroup, RanksOnOneDeviceAreWarnedUnlessTheyMeanIt) {
  for (const char* meant : {"0", "1"}) {
    Job job{.settings = {{"HORO_SHARE_GPUS", meant}, {"HORO_DEVICE_PATH", "auto"}}};
    run(2, job, [](Runtime& runtime) {
      std::vector<float> data(8, 1.0F);
      ASSERT_TRUE(allreduce(runtime.engine().world(), data, 0).ok());
      EXPECT_EQ(runtime.engine().world().device_path_name(), "staged");
      EXPECT_EQ(data, std::vector<float>(8, 2.0F));
    });
    EXPECT_STREQ(Plugin::get().calls(0), "");
    if (*meant == '1') {
      EXPECT_TRUE(job.warnings.empty()) << job.warnings[0];
    } else {
      ASSERT_EQ(job.warnings.size(), 1u);
      EXPECT_TRUE(contains(job.warnings[0], "ranks 0 and 1 use one GPU (0000:00:00.0)")) << job.warnings[0];
    }
  }
  Job job{.settings = {{"HORO_DEVICE_PATH", "nccl"}, {"HORO_SHARE_GPUS", "1"}}};
  run(2, job, [](Runtime& runtime) {
    std::vector<float> data(8, 1.0F);
    const Status status = allreduce(runtime.engine().world(), data, 0);
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_TRUE(contains(status.message(), "ranks 0 and 1 use one GPU")) << status;
  });
}

TEST(FabricGroup, MembersThatCannotBeConnectedTakeAnotherWayTogether) {
  for (const std::string path : {"auto", "nccl"}) {
    Job job{.settings = {{"HORO_DEVICE_PATH", path}, {"HORO_TIMEOUT", "500ms"}}, .behaviour = {.refuses = 1}};
    run(2, job, [&](Runtime& runtime) {
      for (int turn = 0; turn < 2; ++turn) {
        std::vector<float> data(8, 1.0F);
        const Status status = allreduce(runtime.engine().world(), data, runtime.rank());
        if (path == "auto") {
          ASSERT_TRUE(status.ok()) << status;
          EXPECT_EQ(runtime.engine().world().device_path_name(), "staged");
          EXPECT_EQ(data, std::vector<float>(8, 2.0F));
        } else {
          EXPECT_EQ(status.code(), Code::kUnavailable) << status;
          break;
        }
      }
    });
    EXPECT_TRUE(contains(Plugin::get().calls(0), "CommAbort")) << "who waited in vain";
    EXPECT_FALSE(contains(Plugin::get().calls(0), "CommDestroy"));
    EXPECT_GE(job.warnings.size(), 1u);
  }
}

TEST(FabricGroup, NcclIsTakenByItselfWhereEachRankHasADeviceOfItsOwn) {
  Job job{.settings = {{"HORO_DEVICE_PATH", "auto"}}};
  run(2, job, [](Runtime& runtime) {
    std::vector<float> data(8, 1.0F);
    ASSERT_TRUE(allreduce(runtime.engine().world(), data, runtime.rank()).ok());
    EXPECT_EQ(runtime.engine().world().device_path_name(), "nccl");
    EXPECT_EQ(data, std::vector<float>(8, 2.0F));
  });
}

TEST(FabricGroup, ARankAloneHasNothingToSendUnlessNcclIsForced) {
  Job job{.settings = {{"HORO_DEVICE_PATH", "auto"}}};
  run(1, job, [](Runtime& runtime) {
    std::vector<float> data(8, 1.0F), before = data;
    ASSERT_TRUE(allreduce(runtime.engine().world(), data, 0).ok());
    EXPECT_EQ(runtime.engine().world().device_path_name(), "local");
    EXPECT_EQ(data, before);
  });
  EXPECT_STREQ(Plugin::get().calls(0), "");
}

TEST(FabricGroup, AMemberThatGivesUpEndsWhatRunsOnTheDevices) {
  Job job{.settings = {}, .behaviour = {.stuck = true}};
  std::latch told(3);  // Whoever left before that might be what another one hears of.
  run(3, job, [&](Runtime& runtime) {
    Group& world = runtime.engine().world();
    std::vector<float> data(8, 1.0F);
    std::thread ending;
    if (runtime.rank() == 2) {
      ending = std::thread([&] {
        while (!contains(Plugin::get().calls(2), "AllReduce")) std::this_thread::yield();
        world.give_up(Status(Code::kUnavailable, "the device fell off the bus"));
      });
    }
    const Status status = allreduce(world, data, runtime.rank());
    told.arrive_and_wait();
    EXPECT_TRUE(contains(status.message(), "fell off the bus")) << status;
    EXPECT_FALSE(status.contents_intact()) << "it was in place";
    EXPECT_FALSE(allreduce(world, data, runtime.rank()).ok());
    if (ending.joinable()) ending.join();
  });
  for (int member : {0, 1, 2}) {
    const std::string calls = Plugin::get().calls(member);
    EXPECT_TRUE(contains(calls, "CommAbort") && !contains(calls, "CommDestroy")) << calls;
  }
}

/// Operations that are handed in one after the other, behind one by which the members get to know each other; they meet
/// NCCL as `behaviour` says.
std::vector<group::RequestHandle> submit_some(Runtime& runtime, const Behaviour& behaviour,
                                              std::vector<std::vector<float>>& data) {
  Group& world = runtime.engine().world();
  std::vector<group::RequestHandle> requests;
  std::vector<float> first(8, 1.0F);
  EXPECT_TRUE(allreduce(world, first, runtime.rank()).ok());
  if (runtime.rank() == 0) Plugin::get().begin(&behaviour);
  EXPECT_TRUE(world.run({}, nullptr, nullptr).ok());
  for (std::vector<float>& one : data) {
    auto request = world.submit(operation_of(Kind::kAllreduce, one.size(), runtime.rank()), in(one), out(one));
    EXPECT_TRUE(request.ok()) << request.status();
    if (request.ok()) requests.push_back(*request);
  }
  return requests;
}

constexpr auto kSoon = std::chrono::seconds(20);

TEST(FabricGroup, NobodyWaitsForTheEndOfAnOperationBeforeTheNextIsQueued) {
  for (int ranks : {1, 3}) {
    Job job;
    run(ranks, job, [](Runtime& runtime) {
      std::vector<std::vector<float>> data(4, std::vector<float>(8, 1.0F));
      const auto requests = submit_some(runtime, {.stuck = true}, data);
      for (const group::RequestHandle& request : requests) {
        ASSERT_TRUE(request->wait_promised(Deadline::after(kSoon)).ok());
        EXPECT_NE(request->promised(), nullptr);
        EXPECT_FALSE(request->done());
      }
      Group& world = runtime.engine().world();
      ASSERT_TRUE(world.run({}, nullptr, nullptr).ok()) << "on the host ranks go on";
      world.give_up(Status(Code::kUnavailable, "the device fell off the bus"));
      for (const group::RequestHandle& request : requests) {
        const Status status = request->wait(Deadline::after(kSoon));
        EXPECT_TRUE(contains(status.message(), "fell off the bus")) << status;
      }
    });
    for (int member = 0; member < ranks; ++member) {
      const std::string calls = Plugin::get().calls(member);
      EXPECT_TRUE(contains(calls, "CommAbort") && !contains(calls, "CommDestroy")) << calls;
    }
  }
}

TEST(FabricGroup, OperationsBehindEachOtherEndInOrder) {
  Job job;
  run(3, job, [](Runtime& runtime) {
    std::vector<std::vector<float>> data(50, values(100, runtime.rank()));
    std::vector<float> expected = values(100, 0);
    for (int rank : {1, 2}) {
      const std::vector<float> other = values(100, rank);
      std::transform(expected.begin(), expected.end(), other.begin(), expected.begin(), std::plus());
    }
    const auto requests = submit_some(runtime, {}, data);
    ASSERT_TRUE(requests.back()->wait(Deadline::after(kSoon)).ok());
    for (size_t i = 0; i < data.size(); ++i) {
      EXPECT_TRUE(requests[i]->done());
      EXPECT_TRUE(requests[i]->wait(Deadline::after(kSoon)).ok());
      EXPECT_EQ(data[i], expected);
    }
  });
}

TEST(FabricGroup, AnErrorThatOneMemberHearsOfLaterEndsAllThatIsUnderWay) {
  Job job;
  run(2, job, [](Runtime& runtime) {
    std::vector<std::vector<float>> data(3, std::vector<float>(8, 1.0F));
    for (const group::RequestHandle& request : submit_some(runtime, {.fails_on = 1}, data)) {
      const Status status = request->wait(Deadline::after(kSoon));
      EXPECT_TRUE(contains(status.message(), "remote process exited")) << status;
    }
    EXPECT_FALSE(allreduce(runtime.engine().world(), data[0], runtime.rank()).ok());
  });
  for (int member : {0, 1}) {
    const std::string calls = Plugin::get().calls(member);
    EXPECT_TRUE(contains(calls, "CommAbort") && !contains(calls, "CommDestroy")) << calls;
  }
}

TEST(FabricGroup, AnErrorThatOneMemberHearsOfEndsTheOperationForAll) {
  Job job{.settings = {}, .behaviour = {.fails_on = 1}};
  run(2, job, [](Runtime& runtime) {
    std::vector<float> data(8, 1.0F);
    const Status status = allreduce(runtime.engine().world(), data, runtime.rank());
    EXPECT_TRUE(contains(status.message(), "remote process exited")) << status;
  });
  for (int member : {0, 1}) {
    const std::string calls = Plugin::get().calls(member);
    EXPECT_TRUE(contains(calls, "CommAbort") && !contains(calls, "CommDestroy")) << calls;
  }
}

TEST(FabricGroup, MembersThatDisagreeAreToldBeforeNcclHangs) {
  Job job;
  run(2, job, [](Runtime& runtime) {
    Group& world = runtime.engine().world();
    std::vector<float> data(16, 1.0F), all(16);
    const uint64_t count = runtime.rank() == 0 ? 8 : 16;
    Status status = world.run(operation_of(Kind::kAllreduce, count, runtime.rank()), in(data), out(data));
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_TRUE(contains(status.message(), "of 8 f32") && contains(status.message(), "of 16 f32")) << status;
    collective::Operation exchange = operation_of(Kind::kAlltoall, 0, runtime.rank());
    exchange.counts = {4, 4};
    exchange.receive_counts = {4, runtime.rank() == 0 ? 5u : 4u};
    status = world.run(exchange, in(data), out(all));
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_TRUE(contains(status.message(), "rank 1 sends 4 elements to rank 0, which expects 5")) << status;
    EXPECT_TRUE(allreduce(world, data, runtime.rank()).ok()) << "the group goes on";
  });
}

TEST(FabricPlugin, SaysWhichNcclItFound) {
  std::string words(4096, '\0');
  EXPECT_EQ(Plugin::get().table->describe(words.data(), words.size()), 0);
  EXPECT_TRUE(contains(words, "NCCL: 22900 (libnccl.so.2)")) << words;
  EXPECT_TRUE(contains(words, "4 devices")) << words;
}

}  // namespace
}  // namespace horo::engine
