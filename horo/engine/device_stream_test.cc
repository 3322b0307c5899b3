// Results on a device that streams wait for, and threads do not.
#include <gtest/gtest.h>

#include <atomic>
#include <latch>

#include "horo/engine/device_testing.h"

namespace horo::engine {
namespace {

/// A stream of the application, with a gate in it.
class Stream {
 public:
  Stream() { host_device().open_queue(0, &queue_); }
  ~Stream() {
    open();
    host_device().close_queue(queue_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  /// What comes later waits for open().
  void close() { host_device().queue_hold(queue_, &gate_, 1); }
  void open() { std::atomic_ref(gate_).store(1); }
  void copy(void* to, const void* from, uint64_t bytes) {
    const horo_device_copy piece{to, from, bytes};
    host_device().queue_copy(queue_, &piece, 1);
  }
  void finish() { host_device().queue_finish(queue_, 0); }
  void* get() const { return queue_; }
  device::EventHandle now() const {
    void* event = nullptr;
    host_device().queue_record(queue_, &event);
    return std::make_shared<const device::Event>(host_device(), event);
  }

 private:
  uint32_t gate_ = 0;
  void* queue_ = nullptr;
};

/// On a device that serves one process at a time, or all at once.
class DeviceStream : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    HostDevice::get().in_turns = GetParam();
    HostDevice::get().called_off = 0;
  }
  void TearDown() override {
    HostDevice::get().in_turns = false;
    HostDevice::get().may_hold = true;
  }
};
INSTANTIATE_TEST_SUITE_P(InTurns, DeviceStream, testing::Bool());

const Variables kHeld = {{"HORO_DEVICE_PATH", "direct"}, {"HORO_SHARE_GPUS", "1"}, {"HORO_DEVICE_HOLD", "always"}};

constexpr uint64_t kSizes[] = {1 << 16, (9 << 20) + 5};  // In memory that each reads whole, and in slices.

TEST_P(DeviceStream, IsToldOfAResultThatCannotBeThereYet) {
  run(2, kHeld, [](Runtime& runtime) {
    group::Group& world = runtime.engine().world();
    for (const uint64_t count : kSizes) {
      std::vector<float> expected = values(count, 0), seen(count);
      const std::vector<float> others = values(count, 1);
      for (uint64_t i = 0; i < count; ++i) expected[i] += others[i];
      std::vector<float> data(count);
      const std::vector<float> given = values(count, runtime.rank());
      Stream producer, consumer;
      producer.close();
      producer.copy(data.data(), given.data(), count * sizeof(float));  // Not before open().
      collective::Operation operation = operation_of(collective::Kind::kAllreduce, count);
      operation.where.ready = producer.now();
      auto request = world.submit(operation, bytes(data), bytes(data));
      ASSERT_TRUE(request.ok()) << request.status();
      ASSERT_TRUE((*request)->wait_promised(Deadline::after(std::chrono::seconds(20))).ok());
      EXPECT_FALSE((*request)->done());
      ASSERT_NE((*request)->promised(), nullptr);
      ASSERT_TRUE((*request)->promised()->precede(0, consumer.get()).ok());
      consumer.copy(seen.data(), data.data(), count * sizeof(float));
      producer.open();
      consumer.finish();
      EXPECT_EQ(seen, expected);
      EXPECT_TRUE((*request)->wait(Deadline::after(std::chrono::seconds(20))).ok());
    }
  });
}

TEST_P(DeviceStream, HasSeveralOperationsBehindEachOther) {
  run(3, kHeld, [](Runtime& runtime) {
    group::Group& world = runtime.engine().world();
    std::vector<float> data(kSizes[0], 1.0F), seen(kSizes[0]);
    Stream producer, consumer;
    if (runtime.rank() == 1) producer.close();
    std::vector<group::RequestHandle> requests;
    for (int turn = 0; turn < 8; ++turn) {
      collective::Operation operation = operation_of(collective::Kind::kAllreduce, data.size());
      operation.where.ready = producer.now();
      auto request = world.submit(operation, bytes(data), bytes(data));
      ASSERT_TRUE(request.ok()) << request.status();
      requests.push_back(*request);
    }
    for (const group::RequestHandle& request : requests) {
      ASSERT_TRUE(request->wait_promised(Deadline::after(std::chrono::seconds(20))).ok());
      EXPECT_FALSE(request->done());
    }
    ASSERT_TRUE(requests.back()->promised()->precede(0, consumer.get()).ok());
    consumer.copy(seen.data(), data.data(), data.size() * sizeof(float));
    // On the host ranks go on meanwhile.
    collective::Operation barrier;
    ASSERT_TRUE(world.run(barrier, nullptr, nullptr).ok());
    producer.open();
    consumer.finish();
    EXPECT_EQ(seen, std::vector<float>(seen.size(), 6561.0F));
    for (const group::RequestHandle& request : requests) EXPECT_TRUE(request->wait(Deadline::never()).ok());
  });
}

TEST_P(DeviceStream, GoesOnWhenAnOperationFailsThatItWaitsFor) {
  for (const bool has_begun : {false, true}) {
    HostDevice::get().called_off = 0;
    std::latch all(2);
    run(2, kHeld, [&](Runtime& runtime) {
      group::Group& world = runtime.engine().world();
      const std::vector<float> given = values(kSizes[1], runtime.rank());
      std::vector<float> data = given;
      Stream producer, consumer;
      // The last rank's input never comes, or everybody's does not.
      if (runtime.rank() == 1 || !has_begun) producer.close();
      collective::Operation operation = operation_of(collective::Kind::kAllreduce, data.size());
      operation.where.ready = producer.now();
      auto request = world.submit(operation, bytes(data), bytes(data));
      ASSERT_TRUE(request.ok()) << request.status();
      const Status promise = (*request)->wait_promised(Deadline::after(std::chrono::seconds(20)));
      all.arrive_and_wait();  // None may fail before all have their promise.
      ASSERT_TRUE(promise.ok()) << promise;
      ASSERT_TRUE((*request)->promised()->precede(0, consumer.get()).ok());
      if (runtime.rank() == 1) world.give_up(Status(Code::kUnavailable, "the device fell off the bus"));
      while (!world.over()) std::this_thread::yield();
      producer.open();  // As an application that has failed ends, and all its kernels.
      consumer.finish();
      const Status status = (*request)->wait(Deadline::after(std::chrono::seconds(20)));
      EXPECT_EQ(status.code(), Code::kUnavailable) << status;
      EXPECT_TRUE(status.contents_intact()) << "nobody has read what is not there";
      EXPECT_EQ(data, given);
    });
    EXPECT_GT(HostDevice::get().called_off, 0);
  }
}

TEST_P(DeviceStream, EndsWithItsGroupWhereMemoryRunsOut) {
  for (const bool queued : {false, true}) {
    std::latch all(2);
    run(2, kHeld, [&](Runtime& runtime) {
      group::Group& world = runtime.engine().world();
      std::vector<float> data(kSizes[1], 1.0F);
      const collective::Operation operation = operation_of(collective::Kind::kAllreduce, data.size());
      const Status first = world.run(operation, bytes(data), bytes(data));
      all.arrive_and_wait();  // Memory is there until both are through.
      ASSERT_TRUE(first.ok()) << first;
      HostDevice::get().has_memory_to_copy = false;
      Status status;
      if (queued) {
        // Refused already where the other rank was faster.
        auto request = world.submit(operation, bytes(data), bytes(data));
        status = request.ok() ? (*request)->wait(Deadline::after(std::chrono::seconds(20))) : request.status();
      } else {
        status = world.run(operation, bytes(data), bytes(data));
      }
      EXPECT_EQ(status.code(), Code::kUnavailable) << status;
      EXPECT_NE(status.message().find("no memory left"), std::string::npos) << status;
      EXPECT_FALSE(world.run(operation, bytes(data), bytes(data)).ok());
    });
    HostDevice::get().has_memory_to_copy = true;
  }
}

TEST_P(DeviceStream, MayHaveTheResultBeforeItsThreadHasGoneOn) {
  run(2, kHeld, [](Runtime& runtime) {
    std::vector<float> data(kSizes[0], 1.0F);
    device::Devices* devices = *runtime.engine().devices().get();
    const auto wait = [&](const device::EventHandle& result) {
      while (!*devices->has_happened(result)) std::this_thread::yield();
    };
    for (int turn = 0; turn < 3; ++turn) {
      const Status status =
          runtime.engine().world().run(operation_of(collective::Kind::kAllreduce, data.size()), bytes(data),
                                       bytes(data), Deadline::never(), true, {.promise = wait});
      ASSERT_TRUE(status.ok()) << status;
    }
    EXPECT_EQ(data, std::vector<float>(kSizes[0], 8.0F));
  });
}

/// The thread waits for the whole operation then.
void expect_no_holds(const std::string& hold = "auto") {
  const int held = HostDevice::get().held;
  run(2, {{"HORO_DEVICE_PATH", "direct"}, {"HORO_SHARE_GPUS", "1"}, {"HORO_DEVICE_HOLD", hold}}, [](Runtime& runtime) {
    std::vector<float> data(kSizes[1], 1.0F);
    auto request = runtime.engine().world().submit(operation_of(collective::Kind::kAllreduce, data.size()), bytes(data),
                                                   bytes(data));
    ASSERT_TRUE(request.ok());
    ASSERT_TRUE((*request)->wait_promised(Deadline::after(std::chrono::seconds(20))).ok());
    EXPECT_TRUE((*request)->done());
    EXPECT_EQ((*request)->promised(), nullptr);
    EXPECT_EQ(data, std::vector<float>(kSizes[1], 2.0F));
  });
  EXPECT_EQ(HostDevice::get().held, held);
}

TEST_P(DeviceStream, WaitsLongerWhereAQueueMayNotBeHeld) {
  HostDevice::get().may_hold = false;
  expect_no_holds();
}

TEST(DeviceHold, CanBeTurnedOff) { expect_no_holds("never"); }

TEST(DeviceHold, IsNotForADeviceThatServesProcessesInTurns) {
  HostDevice::get().in_turns = true;
  expect_no_holds();
  HostDevice::get().in_turns = false;
}

TEST_P(DeviceStream, DoesNotMakeThreadsWaitForSmallOperationsEither) {
  run(2, {{"HORO_SHARE_GPUS", "1"}, {"HORO_DEVICE_HOLD", "always"}}, [](Runtime& runtime) {
    group::Group& world = runtime.engine().world();
    std::vector<float> data(4, 1.0F), seen(4);
    for (const bool is_there : {true, false}) {
      Stream producer, consumer;
      if (!is_there && runtime.rank() == 1) producer.close();
      collective::Operation operation = operation_of(collective::Kind::kAllreduce, data.size());
      operation.where.ready = producer.now();
      auto request = world.submit(operation, bytes(data), bytes(data));
      ASSERT_TRUE(request.ok()) << request.status();
      ASSERT_TRUE((*request)->wait_promised(Deadline::after(std::chrono::seconds(20))).ok());
      EXPECT_EQ((*request)->promised() == nullptr, is_there) << "what is there goes through the host";
      if (is_there) continue;
      ASSERT_TRUE((*request)->promised()->precede(0, consumer.get()).ok());
      consumer.copy(seen.data(), data.data(), seen.size() * sizeof(float));
      producer.open();
      consumer.finish();
      ASSERT_TRUE((*request)->wait(Deadline::after(std::chrono::seconds(20))).ok());
    }
    EXPECT_EQ(seen, std::vector<float>(4, 4.0F));
    EXPECT_EQ(data, seen);
  });
}

TEST_P(DeviceStream, AnOperationOnTheHostBetweenTwoBatchesChangesNeither) {
  run(2, kHeld, [](Runtime& runtime) {
    constexpr uint64_t kCount = 1 << 16;
    std::vector<float> one(kCount, 1), two(kCount, 2), three(kCount, 3), four(kCount, 4);
    Stream producer;
    producer.close();
    std::vector<Call> calls = {call_of("one", Kind::kAllreduce, one), call_of("two", Kind::kAllreduce, two)};
    for (Call& call : calls) call.where.ready = producer.now();
    auto first = runtime.submit(0, calls);
    ASSERT_TRUE(first.ok()) << first.status();
    ASSERT_TRUE(runtime.wait(0, *first, Deadline::after_seconds(20), Submission::Until::kPromised).ok());
    Call meeting;
    meeting.tensor.name = "meeting";
    meeting.tensor.kind = Kind::kBarrier;
    auto met = runtime.submit(0, {meeting});
    ASSERT_TRUE(met.ok()) << met.status();
    ASSERT_TRUE(runtime.wait(0, *met, Deadline::after_seconds(20)).ok());
    EXPECT_FALSE((*first)->done());
    auto second =
        runtime.submit(0, {call_of("three", Kind::kAllreduce, three), call_of("four", Kind::kAllreduce, four)});
    ASSERT_TRUE(second.ok()) << second.status();
    // That it waits for the first shows only in what it does not do.
    (void)runtime.wait(0, *second, Deadline::after(std::chrono::milliseconds(200)), Submission::Until::kPromised).ok();
    producer.open();
    for (const Handle& handle : {*first, *second}) {
      const Status status = runtime.wait(0, handle, Deadline::after_seconds(20));
      EXPECT_TRUE(status.ok()) << status;
    }
    EXPECT_EQ(one, std::vector<float>(kCount, 2));
    EXPECT_EQ(two, std::vector<float>(kCount, 4));
    EXPECT_EQ(three, std::vector<float>(kCount, 6));
    EXPECT_EQ(four, std::vector<float>(kCount, 8));
  });
}

TEST(DeviceRuntime, TensorsThatArePutTogetherArePromisedTogether) {
  for (const bool fails : {false, true}) {
    std::latch all(2);
    run(2, {{"HORO_DEVICE_PATH", "direct"}}, [&](Runtime& runtime) {
      std::vector<std::vector<float>> tensors, expected;
      Stream producer, consumer;
      producer.close();
      std::vector<Call> calls;
      for (size_t i = 0; i < 200; ++i) {
        tensors.emplace_back(1 + 37 * i, static_cast<float>(runtime.rank()));
        expected.emplace_back(tensors[i].size(), fails ? static_cast<float>(runtime.rank()) : 1.0F);
      }
      for (size_t i = 0; i < tensors.size(); ++i) {
        calls.push_back(call_of("t" + std::to_string(i), Kind::kAllreduce, tensors[i]));
        calls.back().where.ready = producer.now();
      }
      auto handle = runtime.submit(0, std::move(calls));
      ASSERT_TRUE(handle.ok()) << handle.status();
      const Status promised = runtime.wait(0, *handle, Deadline::never(), Submission::Until::kPromised);
      all.arrive_and_wait();  // None may fail before all have their promise.
      ASSERT_TRUE(promised.ok()) << promised;
      EXPECT_FALSE((*handle)->done());
      ASSERT_NE((*handle)->promised(), nullptr);
      ASSERT_TRUE((*handle)->promised()->precede(0, consumer.get()).ok());
      std::vector<float> seen(tensors[9].size());
      consumer.copy(seen.data(), tensors[9].data(), seen.size() * sizeof(float));
      if (fails) {
        runtime.engine().world().give_up(Status(Code::kUnavailable, "the device fell off the bus"));
        while (!runtime.engine().world().over()) std::this_thread::yield();
      }
      producer.open();
      consumer.finish();
      EXPECT_EQ(seen, expected[9]);
      EXPECT_EQ(runtime.wait(0, *handle).ok(), !fails);
      EXPECT_EQ(tensors, expected);
    });
  }
}

}  // namespace
}  // namespace horo::engine
