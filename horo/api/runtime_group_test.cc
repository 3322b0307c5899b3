// Ordered groups on a runtime's engine, and jobs that meet at a store of the program's own.
#include <gtest/gtest.h>

#include <future>

#include "horo/api/rank_threads_testing.h"

namespace {

using horo::Engine;
using horo::Error;
using horo::Group;
using horo::Request;
using horo::Runtime;

void run_runtimes(int size, const std::function<void(Runtime&)>& body, std::vector<std::string> settings = {}) {
  const auto start = [&](const horo_engine_options& engine) {
    horo_runtime_options options = HORO_RUNTIME_OPTIONS_INIT;
    options.engine = &engine;
    Runtime runtime(options);
    body(runtime);
    runtime.barrier("the end");
  };
  horo::api::run_threads(size, start, std::move(settings));
}

horo_code code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return HORO_OK;
}

TEST(ApiRuntimeGroup, RunsOrderedOperationsBesideNamedTensors) {
  for (const char* setting : {"HORO_TRANSPORT=auto", "HORO_TRANSPORT=tcp"}) {
    run_runtimes(3,
                 [](Runtime& runtime) {
                   Group all = runtime.group({0, 1, 2});
                   EXPECT_EQ(all.size(), 3);
                   EXPECT_EQ(all.rank(), runtime.rank());
                   for (int step = 0; step < 20; ++step) {
                     std::vector<float> named(1000, 1), ordered(1000, static_cast<float>(runtime.rank()));
                     horo::Handle handle = runtime.allreduce_async("named", named.data(), named.size());
                     Request request = all.allreduce_async(ordered.data(), ordered.size());
                     handle.wait();
                     request.wait();
                     EXPECT_EQ(named, std::vector<float>(1000, 3));
                     EXPECT_EQ(ordered, std::vector<float>(1000, 3));
                   }
                 },
                 {setting});
  }
}

TEST(ApiRuntimeGroup, OfSomeRanksLeavesTheOthersAlone) {
  run_runtimes(3, [](Runtime& runtime) {
    if (runtime.rank() == 1) return;
    Group pair = runtime.group({0, 2});
    EXPECT_EQ(pair.size(), 2);
    EXPECT_EQ(pair.rank(), runtime.rank() == 0 ? 0 : 1);
    int64_t value = runtime.rank() + 1;
    pair.allreduce(&value, 1);
    EXPECT_EQ(value, 4);
  });
}

TEST(ApiRuntimeGroup, TwoGroupsOfTheSameRanksNeverMeet) {
  run_runtimes(2, [](Runtime& runtime) {
    Group one = runtime.group({0, 1});
    Group two = runtime.group({0, 1});
    float a = 1, b = 10;
    // In another order on each rank.
    if (runtime.rank() == 0) {
      Request first = one.allreduce_async(&a, 1);
      two.allreduce(&b, 1);
      first.wait();
    } else {
      Request second = two.allreduce_async(&b, 1);
      one.allreduce(&a, 1);
      second.wait();
    }
    EXPECT_EQ(a, 2.0F);
    EXPECT_EQ(b, 20.0F);
  });
}

TEST(ApiRuntimeGroup, WrongRanksAreRefused) {
  run_runtimes(2, [](Runtime& runtime) {
    const std::vector<std::vector<int>> wrong{{1, 0}, {0, 0}, {0, 2}, {-1, 0}, {}, {1 - runtime.rank()}};
    for (const std::vector<int>& ranks : wrong) {
      EXPECT_EQ(code_of([&] { runtime.group(ranks); }), HORO_INVALID_ARGUMENT);
    }
  });
}

TEST(ApiRuntimeGroup, OutlivesItsRuntimeAndSaysThatItWasStopped) {
  horo::api::run_threads(2, [](const horo_engine_options& engine) {
    horo_runtime_options options = HORO_RUNTIME_OPTIONS_INIT;
    options.engine = &engine;
    std::optional<Group> group;
    {
      Runtime runtime(options);
      group.emplace(runtime.group({0, 1}));
      group->barrier();
      runtime.barrier("the end");
      runtime.shutdown();
    }
    EXPECT_EQ(code_of([&] { group->barrier(); }), HORO_STOPPED);
  });
}

TEST(ApiRuntimeGroup, GivenUpByOneEndsOnAll) {
  run_runtimes(2, [](Runtime& runtime) {
    Group group = runtime.group({0, 1});
    group.barrier();
    float value = 1;
    if (runtime.rank() == 0) {
      Request alone = group.allreduce_async(&value, 1);
      group.give_up("the test ends it");
      EXPECT_EQ(code_of([&] { alone.wait(); }), HORO_STOPPED);
    }
    runtime.barrier("it was given up");
    EXPECT_EQ(code_of([&] { group.barrier(); }), HORO_STOPPED);
    runtime.barrier("the runtime works on");
  });
}

/// The options of one rank that has nothing from its environment but the settings.
horo_engine_options options_for(int rank, const char* store, const std::vector<unsigned char>& key) {
  static const char* const kSettings[] = {"HORO_INTERFACE=127.0.0.1", "HORO_TIMEOUT=20s", nullptr};
  horo_engine_options options = HORO_ENGINE_OPTIONS_INIT;
  options.rank = rank;
  options.size = 2;
  options.store = store;
  options.job = "met";
  options.settings = kSettings;
  options.key = key.data();
  options.key_bytes = key.size();
  return options;
}

TEST(ApiStore, RanksMeetAtAStoreWithAKeyThatWasHandedOver) {
  const std::vector<unsigned char> key(32, 7);
  horo_store* store = nullptr;
  horo::check(horo_store_serve("127.0.0.1:0", "met", key.data(), key.size(), &store));
  const std::string address = horo_store_address(store);
  EXPECT_EQ(address.find("127.0.0.1:"), 0u) << address;
  EXPECT_NE(address, "127.0.0.1:0");
  const auto rank = [&](int number) {
    Engine engine(options_for(number, address.c_str(), key));
    float value = 1;
    engine.world().allreduce(&value, 1);
    return value;
  };
  std::future<float> one = std::async(std::launch::async, rank, 1);
  EXPECT_EQ(rank(0), 2.0F);
  EXPECT_EQ(one.get(), 2.0F);
  horo_store_destroy(store);
}

TEST(ApiStore, AnotherKeyIsNotLetIn) {
  const std::vector<unsigned char> key(32, 7), other(32, 8);
  horo_store* store = nullptr;
  horo::check(horo_store_serve("127.0.0.1:0", "met", key.data(), key.size(), &store));
  const std::string address = horo_store_address(store);
  EXPECT_EQ(code_of([&] { Engine engine(options_for(1, address.c_str(), other)); }), HORO_UNAUTHENTICATED);
  horo_store_destroy(store);
}

TEST(ApiStore, RefusesShortKeysAndOtherHostsWithoutAKey) {
  horo_store* store = nullptr;
  const auto serve = [&](const char* address, const void* key, size_t bytes) {
    return code_of([&] { horo::check(horo_store_serve(address, "met", key, bytes, &store)); });
  };
  EXPECT_EQ(serve("127.0.0.1:0", "short", 5), HORO_INVALID_ARGUMENT);
  EXPECT_EQ(serve("0.0.0.0:0", nullptr, 0), HORO_INVALID_ARGUMENT);
  EXPECT_EQ(serve("no address", nullptr, 0), HORO_INVALID_ARGUMENT);
  EXPECT_EQ(store, nullptr);
}

}  // namespace
