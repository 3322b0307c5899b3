#include "horo/group/arrivals.h"

#include <gtest/gtest.h>

namespace horo::group {
namespace {

constexpr Time kNow{std::chrono::seconds(1000)};

net::AttachedStream stream_of(int from, uint32_t group, uint32_t number, uint64_t epoch = 3) {
  net::AttachedStream stream;
  stream.socket = net::Socket::pair().value().first;
  stream.about.connector = static_cast<net::Member>(from);
  stream.about.acceptor = 1;
  stream.about.epoch = epoch;
  stream.about.group = group;
  stream.about.stream = number;
  return stream;
}

net::AttachRequest about(int from, uint32_t group, uint32_t number, uint64_t epoch = 3) {
  return stream_of(from, group, number, epoch).about;
}

bool has(const Status& status, std::string_view words) { return status.message().find(words) != std::string::npos; }

struct ArrivalsTest : ::testing::Test {
  Arrivals arrivals{{.rank = 1, .encrypt = false, .patience = std::chrono::seconds(30)}};
};

TEST_F(ArrivalsTest, StreamsOfAKnownGroupAreTakenOnce) {
  EXPECT_TRUE(arrivals.expect(7, 3, {0, 1, 2}).empty());
  ASSERT_TRUE(arrivals.admit(about(2, 7, 0)).ok());
  arrivals.add(stream_of(2, 7, 0), kNow);
  EXPECT_TRUE(has(arrivals.admit(about(2, 7, 0)), "open already"));
  EXPECT_TRUE(arrivals.take(7, 2, 0).has_value());
  EXPECT_FALSE(arrivals.take(7, 2, 0).has_value());
  EXPECT_TRUE(has(arrivals.admit(about(2, 7, 0)), "open already")) << "a second one for the same place";
}

TEST_F(ArrivalsTest, AnotherEpochAStrangerAndALowerRankAreRefused) {
  arrivals.expect(7, 3, {0, 1, 2});
  for (uint64_t epoch : {2, 4}) EXPECT_EQ(arrivals.admit(about(2, 7, 0, epoch)).code(), Code::kIncompatible);
  EXPECT_TRUE(has(arrivals.admit(about(2, 7, 0, 2)), "belongs to epoch 3"));
  EXPECT_EQ(arrivals.admit(about(3, 7, 0)).code(), Code::kInvalidArgument);
  EXPECT_EQ(arrivals.admit(about(0, 7, 0)).code(), Code::kInvalidArgument) << "lower ranks are connected to";
}

TEST_F(ArrivalsTest, EarlyStreamsWaitForTheTermsWhichDecide) {
  for (uint32_t number : {0, 1}) {
    ASSERT_TRUE(arrivals.admit(about(2, 7, number)).ok());
    arrivals.add(stream_of(2, 7, number), kNow);
  }
  ASSERT_TRUE(arrivals.admit(about(2, 7, 2, 2)).ok());
  arrivals.add(stream_of(2, 7, 2, 2), kNow);
  EXPECT_EQ(arrivals.waiting(), 3u);
  EXPECT_FALSE(arrivals.take(7, 2, 0).has_value()) << "nothing is known of the group yet";
  auto refused = arrivals.expect(7, 3, {1, 2});
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_TRUE(has(refused[0], "epoch 2")) << refused[0];
  EXPECT_TRUE(arrivals.take(7, 2, 0).has_value());
  EXPECT_TRUE(arrivals.take(7, 2, 1).has_value());
  EXPECT_TRUE(arrivals.deadline().is_never());
}

TEST_F(ArrivalsTest, StreamsOfGroupsThatNeverComeAreClosedInTime) {
  arrivals.add(stream_of(2, 9, 0), kNow);
  EXPECT_EQ(arrivals.deadline().at(), kNow + std::chrono::seconds(30));
  arrivals.expire(kNow + std::chrono::seconds(29));
  EXPECT_EQ(arrivals.waiting(), 1u);
  arrivals.expire(kNow + std::chrono::seconds(30));
  EXPECT_EQ(arrivals.waiting(), 0u);
}

TEST_F(ArrivalsTest, OnePeerCannotFillAllPlaces) {
  for (uint32_t number = 0; number < Arrivals::kMostEarly; ++number) {
    ASSERT_TRUE(arrivals.admit(about(2, 9, number)).ok()) << number;
    arrivals.add(stream_of(2, 9, number), kNow);
  }
  EXPECT_EQ(arrivals.admit(about(2, 9, Arrivals::kMostEarly)).code(), Code::kUnavailable);
  EXPECT_TRUE(arrivals.admit(about(3, 9, 0)).ok()) << "others are not affected";
  arrivals.expire(kNow + std::chrono::seconds(30));
  EXPECT_TRUE(arrivals.admit(about(2, 9, 0)).ok());
}

TEST_F(ArrivalsTest, AClosedGroupTakesNoMoreStreams) {
  arrivals.expect(7, 3, {1, 2});
  arrivals.add(stream_of(2, 7, 0), kNow);
  arrivals.close(7);
  EXPECT_EQ(arrivals.waiting(), 0u);
  EXPECT_TRUE(has(arrivals.admit(about(2, 7, 1)), "is over"));
}

TEST_F(ArrivalsTest, ADifferenceInEncryptionNamesBothRanksAndTheKnob) {
  net::AttachRequest sealed = about(2, 7, 0);
  sealed.protection = net::Protection::kAesGcm;
  Status status = arrivals.admit(sealed);
  EXPECT_EQ(status.code(), Code::kIncompatible);
  EXPECT_TRUE(has(status, "rank 2 runs with HORO_ENCRYPT=1, rank 1 with HORO_ENCRYPT=0")) << status;
  Arrivals encrypting({.rank = 1, .encrypt = true});
  EXPECT_TRUE(encrypting.admit(sealed).ok());
  EXPECT_TRUE(has(encrypting.admit(about(2, 7, 0)), "rank 2 runs with HORO_ENCRYPT=0, rank 1 with HORO_ENCRYPT=1"));
}

}  // namespace
}  // namespace horo::group
