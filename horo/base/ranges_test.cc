#include "horo/base/ranges.h"

#include <gtest/gtest.h>

namespace horo {
namespace {

TEST(Ranges, AreAlignedToTheirUnitWhateverItIs) {
  for (uint64_t unit : {4096u, 16384u, 65536u}) {
    Ranges ranges(0, 16 * unit, unit);
    EXPECT_EQ(*ranges.take(1), 0u);
    EXPECT_EQ(*ranges.take(unit + 1), unit);
    EXPECT_EQ(*ranges.take(unit), 3 * unit);
    EXPECT_EQ(ranges.bytes_at(unit), 2 * unit);
    EXPECT_EQ(ranges.begin_of(0), 0u);
    EXPECT_EQ(ranges.begin_of(unit), unit);
    EXPECT_EQ(ranges.begin_of(3 * unit - 1), unit);
    ranges.give_back(unit);
    EXPECT_EQ(*ranges.take(2 * unit), unit);
    EXPECT_EQ(ranges.take(13 * unit).status().code(), Code::kUnavailable);
    EXPECT_EQ(ranges.take(UINT64_MAX).status().code(), Code::kUnavailable);
  }
}

}  // namespace
}  // namespace horo
