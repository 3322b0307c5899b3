#include "cli/run/agent_rank.h"

#include <gtest/gtest.h>

namespace horo::cli::launch {
namespace {

TEST(ThreadsPerRank, CoresAreDividedAndNobodyGetsNone) {
  EXPECT_EQ(threads_per_rank(16, 4), "4");
  EXPECT_EQ(threads_per_rank(15, 4), "3");
  EXPECT_EQ(threads_per_rank(2, 64), "1");
  EXPECT_EQ(threads_per_rank(8, 1), "8");
  EXPECT_EQ(threads_per_rank(8, 0), "8");
}

TEST(ShareCores, TheUsersChoiceStandsAndASingleRankNeedsNoWords) {
  RankTerms terms;
  terms.environment = Environment(Environment::Variables{{"OMP_NUM_THREADS", "3"}});
  terms.share_cores(2);
  EXPECT_EQ(terms.environment.find("OMP_NUM_THREADS"), "3");
  EXPECT_TRUE(terms.notes.empty());
  terms.environment = Environment(Environment::Variables{});
  terms.share_cores(1);
  EXPECT_TRUE(terms.environment.find("OMP_NUM_THREADS").has_value());
  EXPECT_TRUE(terms.notes.empty());
  terms.environment = Environment(Environment::Variables{});
  terms.share_cores(1000000);
  EXPECT_EQ(terms.environment.find("OMP_NUM_THREADS"), "1");
  EXPECT_EQ(terms.notes.size(), 1u);
}

TEST(GpusOfARank, StandInItsEnvironment) {
  RankTerms terms;
  terms.gpus = {.each = 1, .visible = "5,6"};
  terms.slots = 2;
  terms.environment = Environment(Environment::Variables{{"CUDA_VISIBLE_DEVICES", "5,6"}});
  const RankOrder second{.rank = 3, .slot = 1, .environment = {}, .output = {}};
  EXPECT_EQ(terms.environment_of(second)->find("CUDA_VISIBLE_DEVICES"), "6");
  terms.gpus.each = 0;
  EXPECT_EQ(terms.environment_of(second)->find("CUDA_VISIBLE_DEVICES"), "5,6") << "nothing was asked for";
}

}  // namespace
}  // namespace horo::cli::launch
