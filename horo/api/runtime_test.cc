// Negotiated execution through the public interface; what the engine does is under test in tests/runtime_test.cc.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "horo/api/rank_threads_testing.h"

namespace {

using horo::Error;
using horo::Handle;
using horo::Runtime;

void run_ranks(int size, const std::function<void(Runtime&)>& body, const std::vector<std::vector<int>>& sets = {}) {
  horo::api::run_threads(size, [&](const horo_engine_options& engine) {
    std::vector<const int*> ranks;
    std::vector<size_t> sizes;
    for (const std::vector<int>& set : sets) {
      ranks.push_back(set.data());
      sizes.push_back(set.size());
    }
    horo_runtime_options options = HORO_RUNTIME_OPTIONS_INIT;
    options.engine = &engine;
    options.set_ranks = ranks.data();
    options.set_sizes = sizes.data();
    options.set_count = sets.size();
    Runtime runtime(options);
    body(runtime);
    runtime.barrier("the end");
  });
}

horo_code code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return HORO_OK;
}

std::vector<float> floats(const horo_result& result) {
  size_t count = 1;
  for (size_t i = 0; i < result.dimensions; ++i) count *= static_cast<size_t>(result.shape[i]);
  std::vector<float> values(count);
  if (count > 0) std::memcpy(values.data(), result.memory, count * sizeof(float));
  return values;
}

TEST(ApiRuntime, WithNothingSetIsAJobOfOneRank) {
  Runtime runtime;
  EXPECT_EQ(runtime.rank(), 0);
  EXPECT_EQ(runtime.size(), 1);
  EXPECT_EQ(runtime.local_rank(), 0);
  EXPECT_EQ(runtime.local_size(), 1);
  EXPECT_EQ(runtime.cross_rank(), 0);
  EXPECT_EQ(runtime.cross_size(), 1);
  EXPECT_TRUE(runtime.is_homogeneous());
  EXPECT_EQ(runtime.set_numbers(), std::vector<int>{0});
  std::vector<float> values{3, 4};
  runtime.allreduce("values", values.data(), values.size(), HORO_AVERAGE);
  EXPECT_EQ(values, (std::vector<float>{3, 4}));
}

// The request to stop meets the loop's thread everywhere on its way, most of all just before it first sleeps.
TEST(ApiRuntime, EndsAtOnceHoweverSoonAfterTheStart) {
  for (int i = 0; i < 1000; ++i) Runtime();
}

TEST(ApiRuntime, WhatIsHandedInToWaitGoesOnWhenTheTimeIsOver) {
  run_ranks(2, [](Runtime& runtime) {
    std::vector<float> values(3, 1.0F);
    const int64_t count = 3;
    const horo_tensor tensor = horo::tensor_of("late", HORO_ALLREDUCE, values.data(), count);
    if (runtime.rank() == 0) {
      Handle late = runtime.run_for({tensor}, 0.01);
      EXPECT_FALSE(late.done()) << "rank 1 hands it in after the barrier";
      runtime.barrier("now");
      late.wait();
    } else {
      runtime.barrier("now");
      EXPECT_TRUE(runtime.run_for({tensor}, 60).done());
    }
    EXPECT_EQ(values, std::vector<float>(3, 2.0F));
    EXPECT_EQ(code_of([&] { runtime.run_for({tensor}, 60, 7); }), HORO_INVALID_ARGUMENT) << "no such set";
  });
}

// The loop's thread rests for a moment after a caller has driven: what comes in that moment must not be forgotten.
TEST(ApiRuntime, WhatIsHandedInBehindAWaitIsDoneThoughNobodyWaitsForIt) {
  run_ranks(2, [](Runtime& runtime) {
    for (int turn = 0; turn < 30; ++turn) {
      std::vector<float> values(5, 1.0F);
      runtime.barrier("a caller drives");
      Handle handle = runtime.allreduce_async("values", values.data(), values.size());
      const horo::Deadline deadline = horo::Deadline::after_seconds(20);
      while (!handle.done() && !deadline.expired()) std::this_thread::yield();
      ASSERT_TRUE(handle.done());
      EXPECT_EQ(values, std::vector<float>(5, 2.0F));
    }
  });
}

TEST(ApiRuntime, ThreadsThatWaitBesideEachOtherAllComeBack) {
  run_ranks(2, [](Runtime& runtime) {
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 3; ++thread) {
      threads.emplace_back([&, name = "tensor " + std::to_string(thread)] {
        for (int turn = 1; turn <= 100; ++turn) {
          float value = static_cast<float>(turn);
          runtime.allreduce_async(name.c_str(), &value, 1).wait();
          EXPECT_EQ(value, static_cast<float>(2 * turn)) << name;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

TEST(ApiRuntime, TensorsTravelAsTheyLieIfAllRanksHaveThemSo) {
  run_ranks(2, [](Runtime& runtime) {
    std::vector<float> values{0, 1, 2, 3, 4, 5};
    const int64_t shape[] = {2, 3}, turned[] = {1, 2}, gaps[] = {6, 2};
    horo_tensor tensor = horo::tensor_of("matrix", HORO_ALLREDUCE, values.data(), shape[0]);
    tensor.shape = shape;
    tensor.dimensions = 2;
    tensor.strides = turned;
    runtime.run({tensor});
    EXPECT_EQ(values, (std::vector<float>{0, 2, 4, 6, 8, 10}));
    if (runtime.rank() == 1) tensor.strides = nullptr;
    std::string words;
    try {
      runtime.run({tensor});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), HORO_MISMATCH);
      words = error.what();
    }
    EXPECT_NE(words.find("[2, 3] with strides [1, 2]"), std::string::npos) << words;
    EXPECT_NE(words.find("[2, 3] row by row"), std::string::npos) << words;
    EXPECT_EQ(values[5], 10) << "untouched";
    tensor.strides = gaps;
    EXPECT_EQ(code_of([&] { runtime.run({tensor}); }), HORO_INVALID_ARGUMENT);
    // A program that was compiled before there were strides.
    tensor.struct_size = offsetof(horo_tensor, strides);
    runtime.run({tensor});
    EXPECT_EQ(values[5], 20);
  });
}

TEST(ApiRuntime, TensorsAreReducedInAnyOrder) {
  run_ranks(3, [](Runtime& runtime) {
    std::vector<float> a(10, static_cast<float>(runtime.rank())), b(20, 1.0F);
    const bool first = runtime.rank() == 1;
    Handle one = runtime.allreduce_async(first ? "a" : "b", first ? a.data() : b.data(), first ? 10 : 20);
    Handle two = runtime.allreduce_async(first ? "b" : "a", first ? b.data() : a.data(), first ? 20 : 10);
    one.wait();
    two.wait();
    EXPECT_TRUE(one.done());
    EXPECT_EQ(a, std::vector<float>(10, 3.0F));
    EXPECT_EQ(b, std::vector<float>(20, 3.0F));
    runtime.allreduce("a", a.data(), 10, HORO_ADASUM);
    EXPECT_NEAR(a[0], 3.0F, 1e-6);
  });
}

TEST(ApiRuntime, ResultsOfUnknownSizeBelongToTheHandleOrToWhoeverAllocatesThem) {
  run_ranks(2, [](Runtime& runtime) {
    const std::vector<float> rows(static_cast<size_t>(runtime.rank() + 1), static_cast<float>(runtime.rank()));
    const int64_t count = runtime.rank() + 1;
    horo_tensor tensor = horo::tensor_of("rows", HORO_ALLGATHER, rows.data(), count);
    Handle gathered = runtime.submit({tensor});
    gathered.wait();
    EXPECT_EQ(floats(gathered.result()), (std::vector<float>{0, 1, 1}));
    EXPECT_EQ(code_of([&] { gathered.result(1); }), HORO_INVALID_ARGUMENT);

    std::vector<float> mine;
    tensor.allocate_context = &mine;
    tensor.allocate = [](void* context, const int64_t* shape, size_t dimensions) -> void* {
      auto& into = *static_cast<std::vector<float>*>(context);
      into.resize(dimensions == 1 ? static_cast<size_t>(shape[0]) : 0);
      return into.data();
    };
    Handle again = runtime.submit({tensor});
    again.wait();
    EXPECT_EQ(mine, (std::vector<float>{0, 1, 1}));
    EXPECT_EQ(again.result().memory, mine.data());
  });
}

TEST(ApiRuntime, SplitsOfAnAlltoallCome) {
  run_ranks(2, [](Runtime& runtime) {
    const std::vector<float> sent(3, static_cast<float>(runtime.rank()));
    const int64_t count = 3;
    const uint64_t splits[] = {1, 2};
    horo_tensor tensor = horo::tensor_of("mail", HORO_ALLTOALL, sent.data(), count);
    tensor.splits = splits;
    tensor.split_count = 2;
    Handle mail = runtime.submit({tensor});
    mail.wait();
    const horo_result result = mail.result();
    ASSERT_EQ(result.split_count, 2u);
    EXPECT_EQ(result.received_splits[0], runtime.rank() == 0 ? 1u : 2u);
    EXPECT_EQ(floats(result).size(), runtime.rank() == 0 ? 2u : 4u);
  });
}

TEST(ApiRuntime, AMismatchIsAnOutcomeAndABadCallIsNot) {
  run_ranks(2, [](Runtime& runtime) {
    std::vector<float> values(8, 1.0F);
    Handle handle = runtime.allreduce_async("w", values.data(), runtime.rank() == 0 ? 4 : 5);
    EXPECT_EQ(code_of([&] { handle.wait(); }), HORO_MISMATCH);
    EXPECT_EQ(code_of([&] { handle.result(); }), HORO_MISMATCH);
    EXPECT_EQ(code_of([&] { runtime.allreduce("w", values.data(), 4, HORO_SUM, 7); }), HORO_INVALID_ARGUMENT);
    horo_tensor tensor = HORO_TENSOR_INIT;
    EXPECT_EQ(code_of([&] { runtime.submit({tensor}); }), HORO_INVALID_ARGUMENT) << "no name";
    tensor.name = "n";
    tensor.kind = HORO_GATHER;
    EXPECT_EQ(code_of([&] { runtime.submit({tensor}); }), HORO_INVALID_ARGUMENT) << "no such kind";
    tensor.kind = HORO_ALLREDUCE;
    tensor.dtype = static_cast<horo_dtype>(266);
    EXPECT_EQ(code_of([&] { runtime.submit({tensor}); }), HORO_INVALID_ARGUMENT) << "no such dtype";
    EXPECT_EQ(code_of([&] { runtime.submit({}); }), HORO_INVALID_ARGUMENT) << "no tensors";
    runtime.allreduce("w", values.data(), 4);
    EXPECT_EQ(values[0], 2.0F);
  });
}

constexpr int64_t kOne = 1;  // The extent of tensors below, which point to it.

TEST(ApiRuntime, ManyTensorsAreHandedInEachByItself) {
  run_ranks(2, [](Runtime& runtime) {
    constexpr int kCount = 100;
    for (const bool waits : {false, true, true}) {
      std::vector<float> values(kCount);
      std::vector<std::string> names;
      std::vector<horo_tensor> tensors;
      for (int i = 0; i < kCount; ++i) names.push_back("v" + std::to_string(i));
      // The other rank's come in another order: they are no group.
      if (runtime.rank() == 1) std::reverse(names.begin(), names.end());
      for (size_t i = 0; i < kCount; ++i) {
        values[i] = std::stof(names[i].substr(1));
        tensors.push_back(horo::tensor_of(names[i].c_str(), HORO_ALLREDUCE, &values[i], kOne));
      }
      std::vector<Handle> handles;
      runtime.submit_each(tensors, handles, waits);
      ASSERT_EQ(handles.size(), static_cast<size_t>(kCount));
      for (Handle& handle : handles) handle.wait();
      for (size_t i = 0; i < kCount; ++i) EXPECT_EQ(values[i], 2 * std::stof(names[i].substr(1)));
    }
  });
}

TEST(ApiRuntime, OfManyTensorsThoseBeforeARefusedOneGoOn) {
  run_ranks(2, [](Runtime& runtime) {
    for (const bool waits : {false, true}) {
      std::vector<float> values(4, 1.0F);
      std::vector<horo_tensor> tensors;
      for (size_t i = 0; i < values.size(); ++i) {
        const char* names[] = {"a", "b", "a", "c"};  // A name may be in use once.
        tensors.push_back(horo::tensor_of(names[i], HORO_ALLREDUCE, &values[i], kOne));
      }
      std::vector<Handle> handles;
      EXPECT_EQ(code_of([&] { runtime.submit_each(tensors, handles, waits); }), HORO_INVALID_ARGUMENT);
      ASSERT_EQ(handles.size(), 2u);
      for (Handle& handle : handles) handle.wait();
      EXPECT_EQ(values, (std::vector<float>{2, 2, 1, 1}));
      EXPECT_EQ(code_of([&] { runtime.submit_each(tensors, handles, waits, 7); }), HORO_INVALID_ARGUMENT)
          << "no such set";
      EXPECT_EQ(code_of([&] { runtime.submit_each({}, handles, waits); }), HORO_INVALID_ARGUMENT) << "no tensors";
      EXPECT_EQ(handles.size(), 2u);
    }
    float value = 1;
    horo_tensor tensor = horo::tensor_of("v", HORO_ALLREDUCE, &value, kOne);
    EXPECT_EQ(code_of([&] { horo::check(horo_runtime_submit_each(runtime.get(), 0, &tensor, 1, 0, nullptr)); }),
              HORO_INVALID_ARGUMENT);
  });
}

TEST(ApiRuntime, TheCallbackHasTheOutcome) {
  run_ranks(2, [](Runtime& runtime) {
    std::atomic<int> code{-1};
    float value = 1;
    const int64_t count = 1;
    horo_tensor tensor = horo::tensor_of("value", HORO_ALLREDUCE, &value, count);
    const auto tell = [](void* context, const horo_status* status) {
      auto& told = *static_cast<std::atomic<int>*>(context);
      told = horo_status_code(status);
      told.notify_all();
    };
    horo::check(horo_runtime_submit(runtime.get(), 0, &tensor, 1, tell, &code, nullptr));
    code.wait(-1);
    EXPECT_EQ(code, HORO_OK);
    EXPECT_EQ(value, 2.0F);
  });
}

TEST(ApiRuntime, ProcessSetsAndJoins) {
  run_ranks(3,
            [](Runtime& runtime) {
              EXPECT_EQ(runtime.set_numbers(), (std::vector<int>{0, 1}));
              EXPECT_EQ(runtime.set_ranks(1), (std::vector<int>{0, 2}));
              float value = 1;
              if (runtime.rank() != 1) {
                runtime.allreduce("v", &value, 1, HORO_SUM, 1);
                EXPECT_EQ(value, 2.0F);
              } else {
                EXPECT_EQ(code_of([&] { runtime.allreduce("v", &value, 1, HORO_SUM, 1); }), HORO_INVALID_ARGUMENT);
              }
              const int added = runtime.add_set({1, 0});
              EXPECT_EQ(runtime.set_ranks(added), (std::vector<int>{0, 1}));
              runtime.remove_set(added);
              EXPECT_EQ(code_of([&] { runtime.set_ranks(added); }), HORO_INVALID_ARGUMENT);
              value = 1;
              if (runtime.rank() != 0) runtime.allreduce("w", &value, 1);
              Handle joined = runtime.join();
              joined.wait();
              EXPECT_NE(joined.answer(), 0);
              if (runtime.rank() != 0) {
                EXPECT_EQ(value, 2.0F);
              }
            },
            {{0, 2}});
}

TEST(ApiRuntime, WaitsRunOutAndAnotherThreadCanShutDownMeanwhile) {
  horo::api::run_threads(2, [](const horo_engine_options& engine) {
    horo_runtime_options options = HORO_RUNTIME_OPTIONS_INIT;
    options.engine = &engine;
    Runtime runtime(options);
    if (runtime.rank() == 0) {
      float value = 1;
      Handle handle = runtime.allreduce_async("alone", &value, 1);
      EXPECT_FALSE(handle.wait_for(0.01));
      EXPECT_EQ(code_of([&] { handle.wait(0.01); }), HORO_TIMEOUT);
      std::thread other([&] { runtime.shutdown(); });
      EXPECT_EQ(code_of([&] { handle.wait(); }), HORO_STOPPED);
      other.join();
      EXPECT_EQ(code_of([&] { runtime.allreduce("later", &value, 1); }), HORO_STOPPED);
    } else {
      EXPECT_NE(code_of([&] { runtime.barrier(); }), HORO_OK) << "the other rank left";
    }
  });
}

TEST(ApiRuntime, TheJobIsJoinedOnceMore) {
  horo::api::run_threads(2, [](const horo_engine_options& engine) {
    horo_runtime_options options = HORO_RUNTIME_OPTIONS_INIT;
    options.engine = &engine;
    auto runtime = std::make_unique<Runtime>(options);
    for (int cycle = 0; cycle < 5; ++cycle) {
      float value = 1;
      runtime->allreduce("v", &value, 1);
      EXPECT_EQ(value, 2.0F);
      runtime->shutdown();
      options.predecessor = runtime->get();
      auto next = std::make_unique<Runtime>(options);
      runtime = std::move(next);
    }
    runtime->barrier();
  });
}

TEST(ApiRuntime, AForkedChildIsRefusedAndLeavesItsParentAlone) {
  Runtime runtime;
  float value = 1;
  runtime.allreduce("v", &value, 1);
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = code_of([&] { runtime.allreduce("w", &value, 1); }) == HORO_FORKED;
    runtime.shutdown();
    horo_runtime_destroy(runtime.get());
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  runtime.allreduce("v", &value, 1);
}

}  // namespace
