// Operations on the memory of devices, with a device that is memory of the host: every way that ranks can go, what they
// agree about, and what happens when one cannot.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "horo/engine/device_testing.h"

namespace horo::engine {
namespace {

/// Every kind that a group has, on the device and on the host: equal bits.
void compare_with_host(Runtime& runtime, uint64_t count) {
  using collective::Kind;
  group::Group& world = runtime.engine().world();
  const auto members = static_cast<uint64_t>(runtime.size());
  for (Kind kind : {Kind::kAllreduce, Kind::kReduce, Kind::kReduceScatter, Kind::kBroadcast, Kind::kAllgather,
                    Kind::kGather, Kind::kScatter, Kind::kAlltoall}) {
    collective::Operation on_device = operation_of(kind, count);
    on_device.root = runtime.size() - 1;
    on_device.prescale = 0.3;
    on_device.op = kind == Kind::kReduce ? ReduceOp::kMax : ReduceOp::kAverage;
    on_device.counts.assign(members, count);
    on_device.counts[0] = count / 2;
    for (int member = 0; member < runtime.size(); ++member) {
      on_device.receive_counts.push_back(member < runtime.rank() ? count : count / 2);
      if (kind == Kind::kAlltoall) {
        on_device.counts[static_cast<size_t>(member)] = runtime.rank() < member ? count : count / 2;
      }
    }
    collective::Operation on_host = on_device;
    on_host.where = {};
    const std::vector<float> given = values(count * members, runtime.rank());
    std::vector<float> expected(count * members), got(count * members);
    ASSERT_TRUE(world.run(on_host, bytes(given), bytes(expected)).ok());
    const Status status = world.run(on_device, bytes(given), bytes(got));
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(got, expected) << transport::name(kind) << " of " << count << " on rank " << runtime.rank();
    std::vector<float> in_place = given;
    const Status again = world.run(on_device, bytes(in_place), bytes(in_place));
    ASSERT_TRUE(again.ok()) << again;
    const auto results = static_cast<std::ptrdiff_t>(on_device.result_count(world.member()));
    EXPECT_TRUE(std::equal(expected.begin(), expected.begin() + results, in_place.begin()))
        << transport::name(kind) << " of " << count << " in place on rank " << runtime.rank();
  }
}

TEST(DeviceGroup, EveryOperationGivesTheBitsThatItGivesOnTheHost) {
  for (int ranks : {1, 2, 3}) {
    for (const char* path : {"auto", "direct", "in turns", "staged"}) {
      const bool in_turns = path == std::string("in turns");
      HostDevice::get().in_turns = in_turns;
      run(ranks, {{"HORO_DEVICE_PATH", in_turns ? "direct" : path}, {"HORO_SHARE_GPUS", "1"}}, [](Runtime& runtime) {
        for (uint64_t count : {1, 1000, 70001}) compare_with_host(runtime, count);
      });
      HostDevice::get().in_turns = false;
    }
    run(ranks, {{"HORO_STAGING", "64MiB"}}, [](Runtime& runtime) {
      // So large that each member reduces a slice.
      collective::Operation operation = operation_of(collective::Kind::kAllreduce, (9 << 20) + 5);
      std::vector<float> given = values(operation.count, runtime.rank()), expected(given.size());
      group::Group& world = runtime.engine().world();
      collective::Operation on_host = operation;
      on_host.where = {};
      ASSERT_TRUE(world.run(on_host, bytes(given), bytes(expected)).ok());
      std::vector<float> got(given.size());
      ASSERT_TRUE(world.run(operation, bytes(given), bytes(got)).ok());
      EXPECT_EQ(got, expected);
      ASSERT_TRUE(world.run(operation, bytes(given), bytes(given)).ok());
      EXPECT_EQ(given, expected);
    });
  }
  EXPECT_EQ(HostDevice::get().allocations, 0);
  EXPECT_EQ(HostDevice::get().mappings, 0);
}

TEST(DeviceGroup, AMemberMayUseAnotherDevice) {
  run(2, {{"HORO_DEVICE_PATH", "direct"}, {"HORO_SHARE_GPUS", "1"}}, [](Runtime& runtime) {
    group::Group& world = runtime.engine().world();
    std::vector<float> first(100'000), second(100'000);
    for (const int other : {0, 1, 0, 1}) {
      for (std::vector<float>* data : {&first, &second}) {
        std::fill(data->begin(), data->end(), 1.0F);
        collective::Operation operation = operation_of(collective::Kind::kAllreduce, data->size());
        operation.where.device = runtime.rank() == 0 ? 0 : other;
        const Status status = world.run(operation, bytes(*data), bytes(*data));
        ASSERT_TRUE(status.ok()) << status;
        EXPECT_EQ(*data, std::vector<float>(data->size(), 2.0F));
      }
    }
  });
}

TEST(DeviceGroup, EndsAfterADeviceThatCouldNotBeUsed) {
  run(2, {{"HORO_DEVICE_PATH", "direct"}, {"HORO_SHARE_GPUS", "1"}}, [](Runtime& runtime) {
    auto group = runtime.engine().create_group({0, 1});
    ASSERT_TRUE(group.ok()) << group.status();
    std::vector<float> data(1000, 1.0F);
    HostDevice::get().refuses_queues = true;
    const Status status =
        (*group)->run(operation_of(collective::Kind::kAllreduce, data.size()), bytes(data), bytes(data));
    EXPECT_EQ(status.code(), Code::kUnavailable) << status;
    runtime.engine().remove_group(*group);
  });
  HostDevice::get().refuses_queues = false;
}

TEST(DeviceGroup, TheWayCanBeForcedByName) {
  for (const std::string path : {"direct", "staged"}) {
    run(2, {{"HORO_DEVICE_PATH", path}}, [&](Runtime& runtime) {
      group::Group& world = runtime.engine().world();
      std::vector<float> data = values(1 << 17, runtime.rank());
      ASSERT_TRUE(world.run(operation_of(collective::Kind::kAllreduce, data.size()), bytes(data), bytes(data)).ok());
      EXPECT_EQ(world.device_path_name(), path);
    });
  }
}

TEST(DeviceGroup, MembersThatCannotMapEachOthersMemoryGoThroughTheHost) {
  HostDevice::get().refuses_import = true;
  run(2, {}, [](Runtime& runtime) {
    compare_with_host(runtime, 70001);
    EXPECT_EQ(runtime.engine().world().device_path_name(), "staged");
  });
  run(2, {{"HORO_DEVICE_PATH", "direct"}}, [](Runtime& runtime) {
    std::vector<float> data = values(1000, runtime.rank());
    const Status status =
        runtime.engine().world().run(operation_of(collective::Kind::kAllreduce, data.size()), bytes(data), bytes(data));
    EXPECT_EQ(status.code(), Code::kUnavailable) << status;
    EXPECT_EQ(data, values(1000, runtime.rank()));
  });
  HostDevice::get().refuses_import = false;
}

class DeviceMemory : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override { HostDevice::get().in_turns = GetParam(); }
  void TearDown() override { HostDevice::get().in_turns = false; }
};
INSTANTIATE_TEST_SUITE_P(InTurns, DeviceMemory, testing::Bool());

TEST_P(DeviceMemory, ThatWasExportedIsReducedWhereItLies) {
  run(2, {{"HORO_SHARE_GPUS", "1"}}, [](Runtime& runtime) {
    group::Group& world = runtime.engine().world();
    auto devices = runtime.engine().devices().get();
    ASSERT_TRUE(devices.ok());
    const uint64_t count = 1 << 18;
    auto memory = (*devices)->allocate(0, count * sizeof(float));
    ASSERT_TRUE(memory.ok());
    const std::vector<float> given = values(count, runtime.rank());
    std::vector<float> expected(count);
    collective::Operation operation = operation_of(collective::Kind::kAllreduce, count);
    operation.where = {};
    ASSERT_TRUE(world.run(operation, bytes(given), bytes(expected)).ok());
    operation.where.device = 0;
    for (int turn = 0; turn < 3; ++turn) {
      std::memcpy(memory->base, given.data(), count * sizeof(float));
      ASSERT_TRUE(world.run(operation, memory->base, memory->base).ok());
      EXPECT_EQ(std::memcmp(memory->base, expected.data(), count * sizeof(float)), 0);
    }
  });
}

// Whatever the sizes: the ranks take the same steps.
TEST_P(DeviceMemory, MayBeSharedOnSomeMembersAndNotOnOthers) {
  run(2, {{"HORO_SHARE_GPUS", "1"}}, [](Runtime& runtime) {
    group::Group& world = runtime.engine().world();
    for (const uint64_t count : {uint64_t{1} << 18, (uint64_t{9} << 20) + 5}) {
      const std::vector<float> given = values(count, runtime.rank());
      std::vector<float> expected(count), ordinary = given;
      collective::Operation operation = operation_of(collective::Kind::kAllreduce, count);
      operation.where = {};
      ASSERT_TRUE(world.run(operation, bytes(given), bytes(expected)).ok());
      operation.where.device = 0;
      for (int who = 0; who < 4; ++who) {  // Nobody, one, the other, both.
        auto shared = runtime.engine().devices().share(0, count * sizeof(float));
        ASSERT_TRUE(shared.ok()) << shared.status();
        const bool mine = (who >> runtime.rank() & 1) != 0;
        std::byte* memory = mine ? shared->get() : bytes(ordinary);
        std::memcpy(memory, given.data(), count * sizeof(float));
        const Status status = world.run(operation, memory, memory);
        ASSERT_TRUE(status.ok()) << status;
        EXPECT_EQ(std::memcmp(memory, expected.data(), count * sizeof(float)), 0) << count << " " << who;
      }
    }
  });
}

TEST(DeviceShared, MemoryIsUsedAgainAndOutlivesTheEngine) {
  std::shared_ptr<std::byte> kept;
  run(1, {}, [&](Runtime& runtime) {
    device::Source& source = runtime.engine().devices();
    auto first = source.share(0, 5000);
    auto second = source.share(0, 3 << 20);
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_EQ(HostDevice::get().allocations, 2);
    const std::byte* address = second->get();
    second->reset();
    auto third = source.share(0, 1 << 20), fourth = source.share(0, 1 << 20);
    ASSERT_TRUE(third.ok() && fourth.ok());
    EXPECT_EQ(HostDevice::get().allocations, 2);
    EXPECT_EQ(third->get(), first->get() + 5120);
    EXPECT_EQ(fourth->get(), address);
    kept = *fourth;
  });
  EXPECT_EQ(HostDevice::get().allocations, 2);
  *kept = std::byte{7};
  kept.reset();
  EXPECT_EQ(HostDevice::get().allocations, 0);
}

TEST(DeviceGroup, AMemberThatGivesUpEndsTheGroupForAll) {
  run(2, {{"HORO_DEVICE_PATH", "direct"}}, [](Runtime& runtime) {
    group::Group& world = runtime.engine().world();
    std::vector<float> data = values(1 << 18, runtime.rank());
    const auto operation = operation_of(collective::Kind::kAllreduce, data.size());
    ASSERT_TRUE(world.run(operation, bytes(data), bytes(data)).ok());
    if (runtime.rank() == 0) {
      world.give_up(Status(Code::kUnavailable, "the device fell off the bus"));
    } else {
      const Status status = world.run(operation, bytes(data), bytes(data));
      EXPECT_FALSE(status.ok());
      EXPECT_NE(status.message().find("fell off the bus"), std::string::npos) << status;
    }
  });
}

TEST(DeviceGroup, MembersThatGiveHostAndDeviceMemoryAreToldSo) {
  for (const char* transport : {"auto", "tcp"}) {
    run(2, {{"HORO_TRANSPORT", transport}}, [](Runtime& runtime) {
      group::Group& world = runtime.engine().world();
      for (uint64_t count : {10, 10, 1 << 17}) {  // The first operation of a group, one through the host, a direct one.
        std::vector<float> data = values(count, runtime.rank());
        collective::Operation operation = operation_of(collective::Kind::kAllreduce, count);
        if (runtime.rank() == 1) operation.where = {};
        const Status status = world.run(operation, bytes(data), bytes(data));
        EXPECT_EQ(status.code(), Code::kMismatch);
        EXPECT_NE(status.message().find("in host memory"), std::string::npos) << status;
        EXPECT_NE(status.message().find("in device memory"), std::string::npos) << status;
        EXPECT_EQ(data, values(count, runtime.rank()));
        operation.where.device = 0;
        EXPECT_TRUE(world.run(operation, bytes(data), bytes(data)).ok()) << "the group goes on";
      }
    });
  }
}

TEST(DeviceGroup, MembersThatDisagreeAreToldBeforeAnybodyReads) {
  run(2, {{"HORO_DEVICE_PATH", "direct"}}, [](Runtime& runtime) {
    group::Group& world = runtime.engine().world();
    std::vector<float> data = values(1 << 12, runtime.rank());
    ASSERT_TRUE(world.run(operation_of(collective::Kind::kAllreduce, 8), bytes(data), bytes(data)).ok());
    const auto odd = operation_of(collective::Kind::kAllreduce, runtime.rank() == 0 ? 1 << 8 : 1 << 12);
    const Status status = world.run(odd, bytes(data), bytes(data));
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_NE(status.message().find("of 256 f32"), std::string::npos) << status;
    EXPECT_NE(status.message().find("of 4096 f32"), std::string::npos) << status;
    EXPECT_TRUE(world.run(operation_of(collective::Kind::kAllreduce, 8), bytes(data), bytes(data)).ok());
  });
}

TEST(DeviceRuntime, TensorsOfADeviceArePutTogetherThere) {
  run(2, {}, [](Runtime& runtime) {
    std::vector<std::vector<float>> tensors;
    for (int i = 0; i < 100; ++i) tensors.emplace_back(1 + 37 * i, static_cast<float>(i + runtime.rank()));
    for (int turn = 0; turn < 2; ++turn) {
      std::vector<Call> calls;
      for (size_t i = 0; i < tensors.size(); ++i) {
        calls.push_back(call_of("t" + std::to_string(i), Kind::kAllreduce, tensors[i]));
      }
      auto handle = runtime.submit_to_wait(0, std::move(calls));
      ASSERT_TRUE(handle.ok()) << handle.status();
      ASSERT_TRUE(runtime.wait(0, *handle).ok());
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      const std::vector<float> expected(tensors[i].size(), 2 * (2.0F * static_cast<float>(i) + 1));
      EXPECT_EQ(tensors[i], expected) << i;
    }
  });
}

TEST(DeviceRuntime, TensorsOfTheHostAndOfADeviceDoNotMeet) {
  run(2, {}, [](Runtime& runtime) {
    std::vector<float> data(100, 1.0F);
    Call call = call_of("mixed", Kind::kAllreduce, data);
    if (runtime.rank() == 1) {
      call.where = {};
      call.tensor.place = Place::kHost;
    }
    auto handle = runtime.submit_to_wait(0, {call});
    ASSERT_TRUE(handle.ok());
    const Status status = runtime.wait(0, *handle);
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_NE(status.message().find("host memory"), std::string::npos) << status;
    EXPECT_NE(status.message().find("device memory"), std::string::npos) << status;
  });
}

// Who waits runs the operation itself; elsewhere another thread does.
TEST(DeviceRuntime, RanksThatTuneTakeTheSameWayWhicheverThreadRunsIt) {
  const Variables tuned = {{"HORO_TRANSPORT", "tcp"},
                           {"HORO_SHARE_GPUS", "1"},
                           {"HORO_DEVICE_PATH", "staged"},
                           {"HORO_AUTOTUNE", "1"},
                           {"HORO_AUTOTUNE_WARMUP_SAMPLES", "0"},
                           {"HORO_AUTOTUNE_STEPS_PER_SAMPLE", "1"}};
  run(4, tuned, [](Runtime& runtime) {
    for (int step = 0; step < 40; ++step) {
      std::vector<float> data(1 << 16, 1);
      auto handle = runtime.submit(0, {call_of("tuned", Kind::kAllreduce, data)});
      ASSERT_TRUE(handle.ok()) << handle.status();
      if (runtime.rank() == 0) (void)runtime.wait(0, *handle, Deadline::after_seconds(20)).ok();
      ASSERT_TRUE((*handle)->wait(Deadline::after_seconds(20)));
      ASSERT_TRUE((*handle)->status().ok()) << "step " << step << ": " << (*handle)->status();
      ASSERT_EQ(data, std::vector<float>(1 << 16, 4));
    }
  });
}

TEST(DeviceRuntime, ARankUsesOneDeviceInASet) {
  run(1, {}, [](Runtime& runtime) {
    std::vector<float> data(100, 1.0F);
    auto first = runtime.submit_to_wait(0, {call_of("a", Kind::kAllreduce, data)});
    ASSERT_TRUE(first.ok());
    ASSERT_TRUE(runtime.wait(0, *first).ok());
    Call other = call_of("b", Kind::kAllreduce, data);
    other.where.device = 1;
    EXPECT_EQ(runtime.submit_to_wait(0, {other}).status().code(), Code::kInvalidArgument);
  });
}

TEST(DeviceRuntime, AdasumAndJoinedRanksGoThroughTheHost) {
  run(2, {}, [](Runtime& runtime) {
    std::vector<float> data = values(500, runtime.rank()), expected = data;
    Call on_host = call_of("a", Kind::kAllreduce, expected);
    on_host.tensor.reduction = Reduction::kAdasum;
    Call on_device = call_of("b", Kind::kAllreduce, data);
    on_device.tensor.reduction = Reduction::kAdasum;
    on_host.where = {};
    on_host.tensor.place = Place::kHost;
    auto first = runtime.submit_to_wait(0, {on_host});
    ASSERT_TRUE(first.ok());
    ASSERT_TRUE(runtime.wait(0, *first).ok());
    auto second = runtime.submit_to_wait(0, {on_device});
    ASSERT_TRUE(second.ok());
    const Status status = runtime.wait(0, *second);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(data, expected);
    if (runtime.rank() == 0) {
      auto alone = runtime.submit_to_wait(0, {call_of("c", Kind::kAllreduce, data)});
      ASSERT_TRUE(alone.ok());
      ASSERT_TRUE(runtime.wait(0, *alone).ok());
      EXPECT_EQ(data, expected);
    }
    auto joined = runtime.join();
    ASSERT_TRUE(joined.ok());
    ASSERT_TRUE(runtime.wait(0, *joined).ok());
  });
}

}  // namespace
}  // namespace horo::engine
