#include "horo/group/partly_served.h"

#include <gtest/gtest.h>

namespace horo::group {
namespace {

constexpr size_t kPieces = 4;

class PartlyServedTest : public ::testing::Test {
 protected:
  PartlyServedTest() {
    for (size_t i = 0; i < kPieces * 10; ++i) result_.push_back(static_cast<std::byte>(i));
  }

  std::optional<std::vector<std::byte>> add(size_t piece) {
    return served_.add(7, 1, piece * 10, std::span(result_).subspan(piece * 10, 10), piece + 1 == kPieces);
  }

  std::vector<std::byte> result_;
  PartlyServed served_;
};

TEST_F(PartlyServedTest, PiecesInOrderAreTheResult) {
  for (size_t piece : {0, 1, 2}) EXPECT_FALSE(add(piece));
  EXPECT_EQ(add(3), result_);
}

TEST_F(PartlyServedTest, PiecesOfTwoServersInAnyTurnsAreTheResult) {
  // All ways to mix two streams: a bit says whose piece is next, as long as it has any.
  for (unsigned turns = 0; turns < 1U << (2 * kPieces); ++turns) {
    size_t next[2] = {0, 0};
    int results = 0;
    for (unsigned i = 0; i < 2 * kPieces; ++i) {
      const unsigned turn = turns >> i & 1;
      size_t& piece = next[next[turn] < kPieces ? turn : 1 - turn];
      if (auto whole = add(piece++)) {
        EXPECT_EQ(*whole, result_) << turns;
        ++results;
      }
    }
    EXPECT_GE(results, 1) << turns;
    served_.forget(7);
  }
}

TEST_F(PartlyServedTest, OneWhoDiesHalfWayIsFollowedByAnother) {
  for (size_t piece : {0, 1}) EXPECT_FALSE(add(piece));
  for (size_t piece : {0, 1, 2}) EXPECT_FALSE(add(piece));
  EXPECT_EQ(add(3), result_);
}

TEST_F(PartlyServedTest, NothingIsKeptOfAGroupThatIsForgotten) {
  EXPECT_FALSE(add(0));
  served_.forget(7);
  for (size_t piece : {1, 2, 3}) EXPECT_FALSE(add(piece));
}

}  // namespace
}  // namespace horo::group
