// Runtimes of several ranks in one process: threads that drive, wait and end at the same time.
#include "horo/engine/runtime.h"

#include <gtest/gtest.h>

#include <future>
#include <latch>

#include "horo/base/text.h"
#include "horo/engine/device_testing.h"

namespace horo::engine {
namespace {

Deadline soon() { return Deadline::after_seconds(30); }

Call on_host(std::string name, Kind kind, std::vector<float>& data) {
  Call call = call_of(std::move(name), kind, data);
  call.tensor.place = Place::kHost;
  call.where.device = -1;
  return call;
}

/// An allgather that is under way until the gate is opened.
struct Gate {
  Call call(std::vector<float>& data) {
    Call call = on_host("gate", Kind::kAllgather, data);
    call.output = nullptr;
    call.allocate = [this](const std::vector<int64_t>& shape) -> Result<std::byte*> {
      reached.set_value();
      opened.get_future().wait();
      memory.resize(static_cast<size_t>(shape[0]));
      return bytes(memory);
    };
    return call;
  }
  std::promise<void> reached, opened;
  std::vector<float> memory;
};

// What the root decides is longer than what is on its way at a time, and the operation can begin only when all has
// come.
TEST(RuntimeThreads, AGroupOfManyTensorsIsRunHoweverLongItsNamesAre) {
  for (const char* transport : {"shm", "tcp"}) {
    run(2, {{"HORO_TRANSPORT", transport}}, [&](Runtime& runtime) {
      std::vector<std::vector<float>> data(8000, std::vector<float>(1, 1));
      std::vector<Call> calls;
      for (size_t i = 0; i < data.size(); ++i) {
        calls.push_back(on_host(text(std::string(60, 'x'), i), Kind::kAllreduce, data[i]));
      }
      auto handle = runtime.submit(0, calls);
      ASSERT_TRUE(handle.ok()) << handle.status();
      const Status status = runtime.wait(0, *handle, soon());
      ASSERT_TRUE(status.ok()) << transport << ": " << status;
      EXPECT_EQ(data.front()[0] + data.back()[0], 4);
    });
  }
}

// A thread of rank 0 drives, and is in one batch of two when another ends the runtime: the second batch has lost its
// submission then, and must not be run as if the rank had joined.
TEST(RuntimeThreads, ARankThatEndsTakesPartInNothingMore) {
  Gate gate;
  std::promise<Handle> awaited;
  std::latch both(2);
  run(2, {}, [&](Runtime& runtime) {
    std::vector<float> gathered(4, 1), never(4, 1), sum(4, runtime.rank() == 0 ? 1 : 10);
    both.arrive_and_wait();
    if (runtime.rank() == 1) {
      std::vector<Handle> handles;
      Call gather = on_host("gate", Kind::kAllgather, gathered);
      gather.output = nullptr;
      ASSERT_TRUE(runtime.submit_each(0, {gather, on_host("sum", Kind::kAllreduce, sum)}, false, handles).ok());
      awaited.set_value(handles[1]);
      ASSERT_TRUE(handles[1]->wait(soon()));
      EXPECT_FALSE(handles[1]->status().ok()) << "a sum of " << sum[0];
      return;
    }
    const Handle others = awaited.get_future().get();
    // Rank 1 never hands this in. Who is told of its end lets the other batch go on, and looks what comes of it.
    ASSERT_TRUE(runtime
                    .submit(0, {on_host("never", Kind::kAllreduce, never)},
                            [&](const Submission&) {
                              gate.opened.set_value();
                              others->wait(Deadline::after(std::chrono::milliseconds(500)));
                            })
                    .ok());
    std::vector<Handle> handles;
    ASSERT_TRUE(
        runtime.submit_each(0, {gate.call(gathered), on_host("sum", Kind::kAllreduce, sum)}, true, handles).ok());
    std::thread ends([&] {
      gate.reached.get_future().wait();
      runtime.shutdown();
    });
    EXPECT_FALSE(runtime.wait(0, handles[1], soon()).ok());
    ends.join();
    EXPECT_EQ(sum, std::vector<float>(4, 1));
  });
}

TEST(RuntimeThreads, WhoWaitsIsNotToldOfTheEndBeforeItsMemoryIsItsOwnAgain) {
  Gate gate;
  run(2, {}, [&](Runtime& runtime) {
    std::vector<float> gathered(4, 1);
    Call call = runtime.rank() == 0 ? gate.call(gathered) : on_host("gate", Kind::kAllgather, gathered);
    if (runtime.rank() == 1) call.output = nullptr;
    auto handle = runtime.submit(0, {call});
    ASSERT_TRUE(handle.ok()) << handle.status();
    if (runtime.rank() == 1) return (void)runtime.wait(0, *handle, soon()).ok();
    gate.reached.get_future().wait();
    std::thread ends([&] { runtime.shutdown(); });
    while (runtime.join(7).status().code() != Code::kStopped) std::this_thread::yield();
    EXPECT_EQ(runtime.wait(0, *handle, Deadline::after(std::chrono::milliseconds(50))).code(), Code::kTimeout);
    EXPECT_FALSE((*handle)->done());
    gate.opened.set_value();
    (void)runtime.wait(0, *handle, soon()).ok();
    EXPECT_TRUE((*handle)->done());
    ends.join();
  });
}

}  // namespace
}  // namespace horo::engine
