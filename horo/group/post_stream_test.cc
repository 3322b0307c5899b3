#include "horo/group/post_stream.h"

#include <gtest/gtest.h>

#include <random>

#include "horo/group/post_wire.h"

namespace horo::group {
namespace {

std::vector<std::byte> pattern(size_t bytes, uint32_t seed) {
  std::vector<std::byte> message(bytes);
  for (size_t i = 0; i < bytes; ++i) message[i] = static_cast<std::byte>((i * 131 + seed * 31 + (i >> 8)) & 0xFF);
  return message;
}

void append(std::vector<std::byte>& to, std::span<const std::byte> bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

TEST(PostStream, LettersComeOutOfPiecesOfAnySize) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::vector<std::vector<std::byte>> letters;
  std::vector<std::byte> stream;
  for (size_t bytes :
       {size_t{0}, size_t{1}, size_t{3}, size_t{4}, size_t{0}, size_t{5000}, size_t{1} << 20, size_t{0}}) {
    letters.push_back(pattern(bytes, static_cast<uint32_t>(bytes)));
    append(stream, letter_prefix(bytes));
    append(stream, letters.back());
  }
  for (size_t most : {size_t{1}, size_t{7}, size_t{3000}, size_t{3} << 20}) {
    Assembler assembler;
    std::vector<std::vector<std::byte>> got;
    for (std::span<const std::byte> rest = stream; !rest.empty();) {
      auto used = assembler.feed(rest.first(std::min(rest.size(), 1 + random() % most)));
      ASSERT_TRUE(used.ok()) << used.status();
      ASSERT_GT(*used, 0u);
      rest = rest.subspan(*used);
      if (assembler.complete()) got.push_back(assembler.take());
    }
    EXPECT_TRUE(got == letters) << "pieces of up to " << most;
  }
}

TEST(PostStream, ALengthThatCannotBeIsDetected) {
  for (size_t length : {kMostLetterBytes + 1, size_t{0xFFFFFFFF}}) {
    Assembler assembler;
    const auto used = assembler.feed(letter_prefix(length));
    ASSERT_FALSE(used.ok());
    EXPECT_EQ(used.status().code(), Code::kCorrupt);
  }
  Assembler assembler;
  EXPECT_TRUE(assembler.feed(letter_prefix(kMostLetterBytes)).ok());
}

TEST(PostStream, AQueueGivesBackWhatItGot) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  OutQueue queue;
  std::vector<std::byte> in, out;
  for (uint32_t turn = 0; turn < 300; ++turn) {
    const auto bytes = pattern(random() % 3 == 0 ? random() % 200'000 : random() % 50, turn);
    append(in, bytes);
    queue.push(bytes);
    for (int pops = 0; pops < 3 && !queue.empty(); ++pops) {
      const auto front = queue.front();
      ASSERT_FALSE(front.empty());
      const size_t some = 1 + random() % front.size();
      append(out, front.first(some));
      queue.pop(some);
    }
    ASSERT_EQ(queue.bytes(), in.size() - out.size());
  }
  while (!queue.empty()) {
    append(out, queue.front());
    queue.pop(queue.front().size());
  }
  EXPECT_TRUE(in == out);
}

/// Both ends of a wire: what one side sends the other gets at once.
struct Wire {
  Bell sender_bell, receiver_bell;
  std::shared_ptr<Mailbox> sender = std::make_shared<Mailbox>(std::vector<int>{3, 9}, sender_bell);
  std::shared_ptr<Mailbox> receiver = std::make_shared<Mailbox>(std::vector<int>{3, 9}, receiver_bell);
  Status delivered;
  WireWriter writer{sender, 1, [this](uint64_t offset, std::vector<std::byte> bytes) {
                      delivered = receiver->deliver(3, offset, std::move(bytes));
                    }};
};

TEST(PostWire, ASenderStopsAtTheWindowUntilTheReceiverHasTakenSome) {
  Wire wire;
  const auto message = pattern(kWireWindow + 1000, 1);
  EXPECT_EQ(wire.writer.put(message).value(), kWireWindow);
  wire.writer.publish();
  ASSERT_TRUE(wire.delivered.ok()) << wire.delivered;
  EXPECT_EQ(wire.writer.put(pattern(1, 1)).value(), 0u);
  EXPECT_EQ(wire.receiver_bell.look(), 1u);
  auto piece = wire.receiver->next();
  ASSERT_TRUE(piece);
  EXPECT_EQ(piece->from, 0);
  EXPECT_EQ(piece->bytes.size(), kWireWindow);
  EXPECT_FALSE(wire.receiver->next());
  const auto taken = wire.receiver->took(0, piece->bytes.size());
  ASSERT_TRUE(taken);
  ASSERT_TRUE(wire.sender->credit(9, *taken).ok());
  EXPECT_EQ(wire.sender_bell.look(), 1u);
  EXPECT_EQ(wire.writer.put(std::span(message).subspan(kWireWindow)).value(), 1000u);
  wire.writer.publish();
  ASSERT_TRUE(wire.delivered.ok()) << wire.delivered;
  EXPECT_EQ(wire.receiver->next()->bytes.size(), 1000u);
  EXPECT_FALSE(wire.receiver->took(0, 1000)) << "not worth a message yet";
}

TEST(PostWire, WhatGoesBeyondTheWindowOrDoesNotFollowIsRefused) {
  const auto refused = [](int rank, uint64_t offset, size_t bytes) {
    Wire wire;
    EXPECT_TRUE(wire.receiver->deliver(3, 0, pattern(100, 1)).ok());
    return wire.receiver->deliver(rank, offset, pattern(bytes, 1)).code() == Code::kCorrupt;
  };
  EXPECT_TRUE(refused(3, 100, kWireWindow));
  EXPECT_TRUE(refused(3, 99, 10));
  EXPECT_TRUE(refused(3, 101, 10));
  EXPECT_TRUE(refused(3, 100, 0));
  EXPECT_TRUE(refused(4, 0, 10)) << "no member";
  EXPECT_FALSE(refused(3, 100, kWireWindow - 100));
  EXPECT_FALSE(refused(9, 0, 10));
}

TEST(PostWire, AReceiverThatHasTakenWhatNobodySentIsDetected) {
  Wire wire;
  ASSERT_TRUE(wire.writer.put(pattern(100, 1)).ok());
  wire.writer.publish();
  ASSERT_TRUE(wire.sender->credit(9, 101).ok());
  EXPECT_EQ(wire.writer.put(pattern(1, 1)).status().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace horo::group
