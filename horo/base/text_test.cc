#include "horo/base/text.h"

#include <gtest/gtest.h>

#include <vector>

namespace horo {
namespace {

TEST(Text, JoinsValues) { EXPECT_EQ(text("rank ", 3, " of ", 4u, '.'), "rank 3 of 4."); }

TEST(Text, NamesRanksAsRanges) {
  EXPECT_EQ(ranks_text({}), "no rank");
  EXPECT_EQ(ranks_text(std::vector{2}), "rank 2");
  EXPECT_EQ(ranks_text(std::vector{3, 2}), "ranks 2, 3");
  EXPECT_EQ(ranks_text(std::vector{7, 1, 0, 3, 2}), "ranks 0-3, 7");
  EXPECT_EQ(ranks_text(std::vector{0, 2, 4, 5, 6}), "ranks 0, 2, 4-6");
}

TEST(Text, NamesSizesInBinaryUnits) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(40), "40 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(64 << 10), "64 KiB");
  EXPECT_EQ(bytes_text(3 << 19), "1.5 MiB");
  EXPECT_EQ(bytes_text(uint64_t{1} << 60), "1024 PiB");
}

TEST(Text, FindsTheNearestWordOnlyForASlip) {
  const std::string_view kWords[] = {"HORO_TIMEOUT", "HORO_STAGING"};
  EXPECT_EQ(nearest_word("HORO_TIMEOUTS", kWords), "HORO_TIMEOUT");
  EXPECT_EQ(nearest_word("HORO_STAGNIG", kWords), "HORO_STAGING");
  EXPECT_EQ(nearest_word("HORO_COMPLETELY_DIFFERENT", kWords), "");
  EXPECT_EQ(nearest_word("ORO_STAGING", kWords), "HORO_STAGING");
  EXPECT_EQ(nearest_word(std::string(100'000, 'H'), kWords), "");
  EXPECT_EQ(nearest_word("x", {}), "");
}

}  // namespace
}  // namespace horo
