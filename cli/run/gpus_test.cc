#include "cli/run/gpus.h"

#include <gtest/gtest.h>

namespace horo::cli::launch {
namespace {

TEST(GpusOfRanks, EachRankGetsItsOwn) {
  EXPECT_EQ(*gpus_of({.each = 1}, 0, 2), "0");
  EXPECT_EQ(*gpus_of({.each = 1}, 1, 2), "1");
  EXPECT_EQ(*gpus_of({.each = 2, .present = 4}, 1, 2), "2,3");
}

TEST(GpusOfRanks, AreOfThoseThatTheUserLetsThemSee) {
  EXPECT_EQ(*gpus_of({.each = 1, .visible = "6,7"}, 1, 2), "7");
  EXPECT_EQ(*gpus_of({.each = 2, .visible = "GPU-a,GPU-b,MIG-c,MIG-d"}, 1, 2), "MIG-c,MIG-d");
}

TEST(GpusOfRanks, TooFewIsAnErrorThatNamesBothNumbers) {
  const auto few = gpus_of({.each = 2, .present = 4}, 0, 3);
  EXPECT_EQ(few.status().code(), Code::kInvalidArgument);
  EXPECT_NE(few.status().message().find("needs 6 GPUs, and it has 4"), std::string::npos) << few.status();
  EXPECT_NE(few.status().message().find("--share-gpus"), std::string::npos);
  const auto seen = gpus_of({.each = 1, .visible = "3", .present = 8}, 0, 2);
  EXPECT_NE(seen.status().message().find("it has 1 (CUDA_VISIBLE_DEVICES=3)"), std::string::npos) << seen.status();
}

TEST(GpusOfRanks, AreGoneThroughAgainWhereTheyAreShared) {
  const GpuTerms terms{.each = 1, .share = true, .present = 2};
  for (int rank = 0; rank < 5; ++rank) EXPECT_EQ(*gpus_of(terms, rank, 5), rank % 2 == 0 ? "0" : "1");
  EXPECT_FALSE(gpus_of({.each = 3, .share = true, .present = 2}, 0, 1).ok()) << "one rank cannot have one twice";
}

}  // namespace
}  // namespace horo::cli::launch
