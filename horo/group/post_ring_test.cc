#include "horo/group/post_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

namespace horo::group {
namespace {

constexpr size_t kSize = 4096;

/// A ring and both of its ends.
struct Ring {
  explicit Ring(size_t size = kSize) : bytes(size) {}
  RingSlot writers, readers;  // In the segment of either.
  std::vector<std::byte> bytes;
  BellWord to_writer, to_reader;
  RingWriter writer{writers.head, bytes, readers.tail, to_reader};
  RingReader reader{writers.head, bytes, readers.tail, to_writer};
};

std::vector<std::byte> pattern(size_t bytes, uint32_t seed) {
  std::vector<std::byte> message(bytes);
  for (size_t i = 0; i < bytes; ++i) message[i] = static_cast<std::byte>((i * 131 + seed * 31 + (i >> 8)) & 0xFF);
  return message;
}

/// All that can be read now.
std::vector<std::byte> read_all(Ring& ring) {
  std::vector<std::byte> all;
  while (true) {
    auto some = ring.reader.readable();
    EXPECT_TRUE(some.ok()) << some.status();
    if (!some.ok() || some->empty()) return all;
    all.insert(all.end(), some->begin(), some->end());
    ring.reader.take(some->size());
    ring.reader.release();
  }
}

TEST(PostRing, NothingShowsBeforeItIsPublished) {
  Ring ring;
  EXPECT_EQ(ring.writer.put(pattern(100, 1)).value(), 100u);
  EXPECT_TRUE(ring.reader.readable()->empty());
  EXPECT_EQ(ring.to_reader.count.load(), 0u);
  ring.writer.publish();
  EXPECT_EQ(ring.to_reader.count.load(), 1u);
  EXPECT_EQ(read_all(ring), pattern(100, 1));
}

TEST(PostRing, BytesGoAroundTheEnd) {
  Ring ring;
  for (uint32_t turn = 0; turn < 200; ++turn) {
    const auto message = pattern(1000 + turn * 7, turn);
    ASSERT_EQ(ring.writer.put(message).value(), message.size());
    ring.writer.publish();
    ASSERT_EQ(read_all(ring), message) << turn;
  }
  EXPECT_EQ(ring.to_writer.count.load(), 0u) << "nobody waited for room";
}

TEST(PostRing, AFullRingTakesNoMoreAndTheReaderWakesTheWriter) {
  Ring ring;
  const auto message = pattern(kSize + 500, 3);
  EXPECT_EQ(ring.writer.put(message).value(), kSize);
  EXPECT_EQ(ring.writer.put(std::span(message).subspan(kSize)).value(), 0u);
  auto some = ring.reader.readable();
  ASSERT_EQ(some->size(), kSize) << "what was put is published when there is no more room";
  std::vector<std::byte> got(some->begin(), some->begin() + 100);
  ring.reader.take(100);
  EXPECT_EQ(ring.to_writer.count.load(), 0u);
  ring.reader.release();
  EXPECT_EQ(ring.to_writer.count.load(), 1u);
  EXPECT_EQ(ring.writer.put(std::span(message).subspan(kSize)).value(), 100u);
  const auto rest = read_all(ring);
  got.insert(got.end(), rest.begin(), rest.end());
  EXPECT_EQ(ring.writer.put(std::span(message).subspan(kSize + 100)).value(), 400u);
  ring.writer.publish();
  const auto last = read_all(ring);
  got.insert(got.end(), last.begin(), last.end());
  EXPECT_EQ(got, message);
  const uint32_t rings = ring.to_writer.count.load();
  EXPECT_EQ(ring.writer.put(pattern(10, 1)).value(), 10u);
  ring.writer.publish();
  (void)read_all(ring);
  EXPECT_EQ(ring.to_writer.count.load(), rings) << "a writer that waits no more is not woken";
}

TEST(PostRing, ImpossibleCountsInSharedMemoryAreDetected) {
  for (uint64_t lie : {uint64_t{99}, uint64_t{100 + kSize + 1}, ~uint64_t{0}}) {
    Ring ring;
    ASSERT_TRUE(ring.writer.put(pattern(100, 1)).ok());
    ring.writer.publish();
    (void)read_all(ring);
    ring.writers.head.written.store(lie);
    const auto read = ring.reader.readable();
    ASSERT_FALSE(read.ok()) << lie;
    EXPECT_EQ(read.status().code(), Code::kCorrupt);
    EXPECT_NE(read.status().message().find(std::to_string(lie)), std::string::npos) << read.status();
  }
  for (uint64_t lie : {uint64_t{0}, uint64_t{kSize + 1}, ~uint64_t{0}}) {
    Ring ring;
    ASSERT_TRUE(ring.writer.put(pattern(kSize, 1)).ok());
    ring.writer.publish();
    (void)read_all(ring);
    ASSERT_TRUE(ring.writer.put(pattern(kSize, 1)).ok());  // Has seen the reader's true count.
    ring.readers.tail.taken.store(lie);
    const auto put = ring.writer.put(pattern(1, 1));
    ASSERT_FALSE(put.ok()) << lie;
    EXPECT_EQ(put.status().code(), Code::kCorrupt);
  }
}

TEST(PostRing, TwoThreadsExchangeAnything) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Ring ring;
  constexpr size_t kTotal = size_t{4} << 20;
  std::thread writer([&] {
    Bell bell(ring.to_writer);
    std::mt19937 random(seed);
    const auto all = pattern(kTotal, seed);
    for (size_t at = 0; at < kTotal;) {
      const uint32_t seen = bell.look();
      const size_t want = std::min<size_t>(random() % (2 * kSize), kTotal - at);
      auto put = ring.writer.put(std::span(all).subspan(at, want));
      ASSERT_TRUE(put.ok()) << put.status();
      ring.writer.publish();
      at += *put;
      const bool woken = *put == want || bell.wait(seen, Deadline::after_seconds(20), false);
      ASSERT_TRUE(woken);
    }
  });
  Bell bell(ring.to_reader);
  std::vector<std::byte> got;
  while (got.size() < kTotal) {
    const uint32_t seen = bell.look();
    const auto some = read_all(ring);
    got.insert(got.end(), some.begin(), some.end());
    if (some.empty() && !bell.wait(seen, Deadline::after_seconds(20), false)) break;
  }
  writer.join();
  EXPECT_EQ(got, pattern(kTotal, seed));
}

}  // namespace
}  // namespace horo::group
