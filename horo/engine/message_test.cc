#include "horo/engine/message.h"

#include <gtest/gtest.h>

#include <random>

namespace horo::engine {
namespace {

constexpr int kMembers = 8;

Unit unit_of(std::string name, std::vector<int64_t> shape = {2, 3}) {
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.kind = Kind::kBroadcast;
  tensor.dtype = DType::kBF16;
  tensor.root = 3;
  tensor.prescale = 0.5;
  tensor.shape = std::move(shape);
  return {{tensor}};
}

Unit turned(Unit unit) {
  unit.tensors[0].strides = {1, 2};
  return unit;
}

Up example_up() {
  Up up;
  up.waiting = true;
  up.known = {1, 2, 3, 9, 11, 12};
  up.partial = {4};
  up.arrived = {{{{unit_of("a"), {0, 1}}, {unit_of("a", {5}), {2}}}, true}, {{{turned(unit_of("b")), {}}}, false}};
  up.joined = {7, 0};
  up.stalled = {{"late", {1, 2}}};
  return up;
}

Down example_down() {
  Down down;
  down.forgotten = {5, 6};
  down.failures = {{"a", "they differ"}};
  down.tuning = Tuning{.threshold = 5 << 20,
                       .window = std::chrono::microseconds(250),
                       .ways = {.allreduce = {.one_level = true, .algorithm = 2}, .allgather = {.algorithm = 1}}};
  down.batches = {{{{3, std::nullopt}, {10, unit_of("c")}, {0, turned(unit_of("d"))}}}};
  down.all_joined = 2;
  down.abort = "enough";
  return down;
}

TEST(EngineMessage, ComesBackAsItWas) {
  auto up = decode_up(encode(example_up()), kMembers);
  ASSERT_TRUE(up.ok()) << up.status();
  EXPECT_EQ(*up, example_up());
  auto down = decode_down(encode(example_down()), kMembers);
  ASSERT_TRUE(down.ok()) << down.status();
  EXPECT_EQ(*down, example_down());
  EXPECT_EQ(*decode_up(encode(Up{}), kMembers), Up{});
  EXPECT_EQ(*decode_down(encode(Down{}), kMembers), Down{});
}

TEST(EngineMessage, ConsecutiveNumbersTakeNoMoreRoomThanOne) {
  Up one, many;
  one.known = {1000};
  for (uint32_t id = 1000; id < 2000; ++id) many.known.push_back(id);
  EXPECT_EQ(encode(many).size(), encode(one).size());
}

TEST(EngineMessage, CutAnywhereIsCorrupt) {
  const std::vector<std::byte> up = encode(example_up()), down = encode(example_down());
  for (size_t length = 0; length < up.size(); ++length) {
    EXPECT_EQ(decode_up({up.data(), length}, kMembers).status().code(), Code::kCorrupt) << length;
  }
  for (size_t length = 0; length < down.size(); ++length) {
    EXPECT_EQ(decode_down({down.data(), length}, kMembers).status().code(), Code::kCorrupt) << length;
  }
}

TEST(EngineMessage, MembersThatDoNotExistAreRefused) {
  Up up;
  up.joined = {kMembers};
  EXPECT_EQ(decode_up(encode(up), kMembers).status().code(), Code::kCorrupt);
  Down down;
  down.all_joined = kMembers;
  EXPECT_EQ(decode_down(encode(down), kMembers).status().code(), Code::kCorrupt);
}

TEST(EngineMessage, SettingsThatCannotBeAreRefused) {
  Down down;
  down.tuning.emplace();
  down.tuning->ways.allreduce.algorithm = 255;
  EXPECT_EQ(decode_down(encode(down), kMembers).status().code(), Code::kCorrupt);
  down.tuning->ways.allreduce.algorithm = 0;
  down.tuning->window = kLongestWindow + std::chrono::nanoseconds(1);
  EXPECT_EQ(decode_down(encode(down), kMembers).status().code(), Code::kCorrupt);
  down.tuning->window = Duration(-1);
  EXPECT_EQ(decode_down(encode(down), kMembers).status().code(), Code::kCorrupt);
}

TEST(EngineMessage, ChangedBytesAreReadOrRefusedButNeverFollowed) {
  std::mt19937 random(11);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> bytes = encode(example_up());
    for (int i = 0; i < 3; ++i) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    if (auto up = decode_up(bytes, kMembers); up.ok()) {
      EXPECT_TRUE(decode_up(encode(*up), kMembers).ok());
    }
    bytes = encode(example_down());
    for (int i = 0; i < 3; ++i) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    if (auto down = decode_down(bytes, kMembers); down.ok()) {
      EXPECT_TRUE(decode_down(encode(*down), kMembers).ok());
    }
  }
}

}  // namespace
}  // namespace horo::engine
