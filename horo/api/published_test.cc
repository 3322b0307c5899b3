#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "horo/api/horo.hpp"

namespace horo::api {
namespace {

/// A job of one rank.
horo_runtime* start() {
  horo_engine_options engine = HORO_ENGINE_OPTIONS_INIT;
  engine.rank = 0;
  engine.size = 1;
  horo_runtime_options options = HORO_RUNTIME_OPTIONS_INIT;
  options.engine = &engine;
  horo_runtime* runtime = nullptr;
  check(horo_runtime_start(&options, &runtime));
  return runtime;
}

horo_status* allreduce(horo_runtime* runtime, float* value) {
  horo_tensor tensor = HORO_TENSOR_INIT;
  tensor.name = "published";
  tensor.kind = HORO_ALLREDUCE;
  tensor.dtype = HORO_F32;
  tensor.input = tensor.output = value;
  return horo_runtime_run(runtime, 0, &tensor, 1, nullptr);
}

TEST(Published, NothingIsUntilSomebodyPublishes) {
  EXPECT_EQ(horo_runtime_acquire(), nullptr);
  horo_runtime* runtime = start();
  EXPECT_EQ(horo_runtime_acquire(), nullptr);
  horo_runtime_destroy(runtime);
}

TEST(Published, TheSameRuntimeIsAcquired) {
  horo_runtime* runtime = start();
  horo_runtime_publish(runtime);
  horo_runtime* acquired = horo_runtime_acquire();
  EXPECT_EQ(acquired, runtime);
  float value = 3;
  EXPECT_EQ(allreduce(acquired, &value), nullptr);
  horo_runtime_release(acquired);
  horo_runtime_publish(nullptr);
  EXPECT_EQ(horo_runtime_acquire(), nullptr);
  horo_runtime_destroy(runtime);
}

TEST(Published, ShutdownTakesItBackAndWhoHoldsItGetsAnError) {
  horo_runtime* runtime = start();
  horo_runtime_publish(runtime);
  horo_runtime* acquired = horo_runtime_acquire();
  horo_runtime_shutdown(runtime);
  EXPECT_EQ(horo_runtime_acquire(), nullptr);
  horo_runtime_destroy(runtime);
  float value = 3;
  horo_status* status = allreduce(acquired, &value);
  EXPECT_EQ(horo_status_code(status), HORO_STOPPED);
  horo_status_free(status);
  horo_runtime_release(acquired);
}

TEST(Published, ASecondOneTakesThePlaceOfTheFirst) {
  horo_runtime* first = start();
  horo_runtime* second = start();
  horo_runtime_publish(first);
  horo_runtime_publish(second);
  horo_runtime_destroy(first);
  horo_runtime* acquired = horo_runtime_acquire();
  EXPECT_EQ(acquired, second);
  horo_runtime_release(acquired);
  horo_runtime_destroy(second);
  EXPECT_EQ(horo_runtime_acquire(), nullptr);
}

TEST(Published, KernelsMayRunWhileTheOwnerDestroysIt) {
  for (int round = 0; round < 20; ++round) {
    horo_runtime* runtime = start();
    horo_runtime_publish(runtime);
    std::atomic<int> ran = 0;
    std::thread kernel([&ran] {
      while (horo_runtime* acquired = horo_runtime_acquire()) {
        float value = 1;
        horo_status_free(allreduce(acquired, &value));
        horo_runtime_release(acquired);
        ++ran;
      }
    });
    while (ran == 0) std::this_thread::yield();
    horo_runtime_destroy(runtime);
    kernel.join();
  }
}

TEST(Published, AForkedChildHasNone) {
  horo_runtime* runtime = start();
  horo_runtime_publish(runtime);
  const pid_t child = fork();
  if (child == 0) _exit(horo_runtime_acquire() == nullptr ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  horo_runtime_destroy(runtime);
}

}  // namespace
}  // namespace horo::api
