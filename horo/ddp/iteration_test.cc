#include "horo/ddp/iteration.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace horo::ddp {
namespace {

using Phase = Iteration::Phase;
using Wrong = Iteration::Wrong;

Indices range(size_t count) {
  Indices all(count);
  std::iota(all.begin(), all.end(), size_t{0});
  return all;
}

Iteration make(const IterationRules& rules, const std::vector<Indices>& buckets) {
  size_t count = 0;
  for (const Indices& bucket : buckets) count += bucket.size();
  Iteration iteration(rules, count);
  iteration.set_buckets(buckets, std::vector<bool>(buckets.size(), false));
  return iteration;
}

Indices launches(Iteration& iteration) {
  Indices all;
  while (auto launch = iteration.launch()) all.push_back(launch->bucket);
  return all;
}

/// All ways to cut 0..count-1 into runs, each then also with the order of the buckets reversed.
std::vector<std::vector<Indices>> bucketings(size_t count) {
  std::vector<std::vector<Indices>> all;
  for (size_t cuts = 0; cuts < size_t{1} << (count - 1); ++cuts) {
    std::vector<Indices> buckets{{0}};
    for (size_t parameter = 1; parameter < count; ++parameter) {
      if ((cuts >> (parameter - 1) & 1) != 0) buckets.emplace_back();
      buckets.back().push_back(parameter);
    }
    all.push_back(buckets);
    std::reverse(buckets.begin(), buckets.end());
    all.push_back(buckets);
  }
  return all;
}

/// How many leading buckets have all their parameters in `done`.
size_t leading(const std::vector<Indices>& buckets, const std::vector<bool>& done) {
  size_t full = 0;
  while (full < buckets.size() &&
         std::all_of(buckets[full].begin(), buckets[full].end(), [&](size_t one) { return done[one]; })) {
    ++full;
  }
  return full;
}

/// One iteration in one order, checked call by call against what the buckets say.
void walk(Iteration& iteration, const std::vector<Indices>& buckets, const Indices& order, const Indices& unused,
          size_t calls = 1) {
  iteration.prepare(true, unused);
  std::vector<bool> done(order.size() + unused.size(), false);
  size_t seen = 0;
  for (size_t parameter : order) {
    for (size_t call = 1; call <= calls; ++call) {
      const auto result = iteration.ready(parameter, true);
      ASSERT_FALSE(result.wrong);
      if (calls == 1) {
        ASSERT_EQ(result.complete.size(), parameter == order[0] ? unused.size() + 1 : 1);
      }
      for (size_t one : result.complete) done[one] = true;
      ASSERT_EQ(done[parameter], call == calls);
      const Indices now = launches(iteration);
      for (size_t bucket : now) ASSERT_EQ(bucket, seen++) << "in order, each once";
      ASSERT_EQ(seen, leading(buckets, done)) << "no sooner and no later than complete";
      ASSERT_EQ(iteration.all_launched(), seen == buckets.size());
    }
  }
  if (order.empty()) {
    EXPECT_EQ(iteration.end_of_backward(), unused);
    EXPECT_EQ(launches(iteration), range(buckets.size()));
  }
  ASSERT_TRUE(iteration.all_launched());
  EXPECT_TRUE(iteration.missing().empty());
}

TEST(DdpIteration, InEveryOrderOfUpToSixGradientsBucketsLaunchInOrderAndAsSoonAsTheyAreComplete) {
  for (size_t count = 1; count <= 6; ++count) {
    for (const auto& buckets : bucketings(count)) {
      Iteration iteration = make({}, buckets);
      Indices order = range(count);
      do {
        ASSERT_NO_FATAL_FAILURE(walk(iteration, buckets, order, {}));
        EXPECT_EQ(iteration.order(), order);
        iteration.finish();
      } while (std::next_permutation(order.begin(), order.end()));
    }
  }
}

TEST(DdpIteration, WithEverySubsetOfUnusedParametersTheRestIsEnough) {
  for (size_t count = 2; count <= 5; ++count) {
    for (const auto& buckets : bucketings(count)) {
      Iteration iteration = make({.find_unused = true}, buckets);
      for (size_t subset = 0; subset < size_t{1} << count; ++subset) {
        Indices unused, order;
        for (size_t one = 0; one < count; ++one) ((subset >> one & 1) != 0 ? unused : order).push_back(one);
        do {
          ASSERT_NO_FATAL_FAILURE(walk(iteration, buckets, order, unused));
          Indices expected = unused;
          expected.insert(expected.end(), order.begin(), order.end());
          EXPECT_EQ(iteration.order(), expected);
          for (size_t one = 0; one < count; ++one) EXPECT_EQ(iteration.map()[one], (subset >> one & 1) == 0 ? 1 : 0);
          iteration.finish();
        } while (std::next_permutation(order.begin(), order.end()));
      }
    }
  }
}

TEST(DdpIteration, AStaticGraphWaitsForTheEndOnceThenForAsManyCallsAsThereWere) {
  for (size_t count = 1; count <= 5; ++count) {
    for (const auto& buckets : bucketings(count)) {
      for (size_t calls : {1, 3}) {
        Indices order = range(count);
        do {
          Iteration iteration = make({.static_graph = true}, buckets);
          iteration.prepare(true, {});
          for (size_t one : order) {
            for (size_t call = 0; call < calls; ++call) ASSERT_TRUE(iteration.ready(one, true).complete.empty());
          }
          ASSERT_TRUE(launches(iteration).empty());
          ASSERT_TRUE(iteration.needs_map());
          EXPECT_EQ(iteration.end_of_backward(), range(count));
          EXPECT_EQ(launches(iteration), range(buckets.size()));
          iteration.finish();
          ASSERT_NO_FATAL_FAILURE(walk(iteration, buckets, order, {}, calls));
          EXPECT_FALSE(iteration.needs_map());
          EXPECT_EQ(iteration.order(), order);
        } while (std::next_permutation(order.begin(), order.end()));
      }
    }
  }
}

TEST(DdpIteration, AStaticGraphLearnsWhatIsUnusedAndNoticesWhenTheGraphChanges) {
  Iteration iteration = make({.static_graph = true, .skip_unused = true}, {{0, 1}, {2}, {3}});
  iteration.prepare(true, {});
  for (size_t one : {0, 0, 3}) EXPECT_FALSE(iteration.ready(one, true).wrong);
  iteration.end_of_backward();
  launches(iteration);
  EXPECT_EQ(iteration.map(), (std::vector<int32_t>{1, 0, 0, 1, 0, 0, 0}));
  // Another rank used parameter 1, nobody parameter 2.
  EXPECT_FALSE(iteration.set_global(std::vector<int32_t>{2, 1, 0, 2, 0, 0, 0}, 2));
  EXPECT_TRUE(iteration.globally_unused(2));
  EXPECT_FALSE(iteration.globally_unused(1));
  iteration.finish();

  iteration.prepare(true, {});
  EXPECT_EQ(iteration.ready(3, true).complete, (Indices{1, 2, 3}));
  EXPECT_TRUE(launches(iteration).empty());
  EXPECT_TRUE(iteration.ready(0, true).complete.empty());
  EXPECT_EQ(iteration.missing(), (Indices{0}));
  EXPECT_EQ(iteration.ready(0, true).complete, (Indices{0}));
  EXPECT_FALSE(iteration.launch()->skipped);
  EXPECT_TRUE(iteration.launch()->skipped) << "nobody uses what is in it";
  EXPECT_FALSE(iteration.launch()->skipped);
  EXPECT_EQ(iteration.ready(3, true).wrong, Wrong::kTooOften);
  EXPECT_TRUE(iteration.globally_unused(2)) << "known since the first iteration";
}

TEST(DdpIteration, AParameterThatIsReadyTwiceOrAfterTheEndIsWrong) {
  Iteration iteration = make({}, {{0, 1}});
  iteration.prepare(true, {});
  EXPECT_FALSE(iteration.ready(0, true).wrong);
  EXPECT_EQ(iteration.ready(0, true).wrong, Wrong::kTwice);
  EXPECT_EQ(iteration.missing(), (Indices{1}));
  iteration.ready(1, true);
  launches(iteration);
  iteration.finish();
  EXPECT_EQ(iteration.ready(0, true).wrong, Wrong::kAfterTheEnd);
  iteration.prepare(true, {});
  EXPECT_FALSE(iteration.ready(0, true).wrong);
  iteration.reset();
  EXPECT_FALSE(iteration.ready(0, true).wrong) << "a failed iteration's gradients are ignored";
}

TEST(DdpIteration, BeforeTheFirstForwardPassAndWhileAddingUpGradientsAreIgnoredButCountAsUsed) {
  Iteration iteration = make({.find_unused = true}, {{0}, {1}});
  EXPECT_TRUE(iteration.ready(0, true).complete.empty());
  iteration.prepare(false, {});
  EXPECT_EQ(iteration.phase(), Phase::kAccumulating);
  EXPECT_TRUE(iteration.ready(0, true).complete.empty());
  EXPECT_TRUE(iteration.ready(0, true).complete.empty());
  iteration.prepare(true, Indices{0});
  EXPECT_EQ(iteration.ready(1, true).complete, (Indices{0, 1}));
  EXPECT_EQ(iteration.map(), (std::vector<int32_t>{1, 1, 0, 0})) << "parameter 0 was used while adding up";
  iteration.finish();
  iteration.prepare(true, Indices{0});
  iteration.ready(1, true);
  EXPECT_EQ(iteration.map(), (std::vector<int32_t>{0, 1, 0, 0}));
}

TEST(DdpIteration, AForwardPassWithoutABackwardPassIsPreparedAnew) {
  Iteration iteration = make({.find_unused = true}, {{0}, {1}});
  iteration.prepare(true, Indices{0});
  EXPECT_FALSE(iteration.under_way());
  iteration.prepare(true, Indices{1});
  EXPECT_EQ(iteration.ready(0, true).complete, (Indices{1, 0}));
  EXPECT_TRUE(iteration.under_way());
}

TEST(DdpIteration, BucketsOfTheCallerStopTheOthersUntilTheyAreLaunched) {
  Iteration iteration(IterationRules{}, 3);
  iteration.set_buckets({{0}, {1}, {2}}, {false, true, false});
  iteration.prepare(true, {});
  for (size_t one : {2, 1, 0}) iteration.ready(one, true);
  EXPECT_FALSE(iteration.launch()->by_caller);
  const auto second = iteration.launch();
  EXPECT_TRUE(second->by_caller);
  EXPECT_EQ(iteration.out(), 1u);
  EXPECT_FALSE(iteration.launch());
  EXPECT_FALSE(iteration.all_launched());
  iteration.launched(1);
  EXPECT_EQ(iteration.launch()->bucket, 2u);
  EXPECT_TRUE(iteration.all_launched());
}

TEST(DdpIteration, SkippedBucketsAreThoseOfWhichNothingIsUsedAndAllRanksMustAgree) {
  Iteration iteration = make({.find_unused = true, .skip_unused = true}, {{0, 1}, {2, 3}, {4}});
  iteration.prepare(true, Indices{0, 2, 3});
  iteration.ready(4, true);
  iteration.ready(1, true);
  EXPECT_FALSE(iteration.launch()->skipped);
  EXPECT_TRUE(iteration.launch()->skipped);
  EXPECT_FALSE(iteration.launch()->skipped);
  EXPECT_EQ(iteration.map(), (std::vector<int32_t>{0, 1, 0, 0, 1, 0, 1, 0}));
  EXPECT_FALSE(iteration.set_global(std::vector<int32_t>{0, 3, 0, 0, 3, 0, 3, 0}, 3));
  EXPECT_EQ(iteration.set_global(std::vector<int32_t>{0, 3, 1, 0, 3, 0, 2, 0}, 3), 1u);
}

TEST(DdpIteration, ARankWithoutDataIsReadyWithEverythingAtOnceAndUsesNothing) {
  Iteration iteration = make({.find_unused = true}, {{1, 2}, {0}});
  iteration.prepare(true, {});
  EXPECT_EQ(iteration.ready_all(), (Indices{0, 1, 2}));
  EXPECT_EQ(launches(iteration), (Indices{0, 1}));
  EXPECT_EQ(iteration.map(), (std::vector<int32_t>{0, 0, 0, 0, 0}));
  Iteration fixed = make({.static_graph = true}, {{0}, {1}});
  fixed.prepare(true, {});
  EXPECT_TRUE(fixed.ready_all().empty());
  EXPECT_EQ(fixed.end_of_backward(), (Indices{0, 1}));
}

}  // namespace
}  // namespace horo::ddp
