#include "horo/ddp/buckets.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <random>

#include "horo/ddp/model_testing.h"

namespace horo::ddp {
namespace {

using Groups = std::vector<Indices>;
constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

Groups assigned(const std::vector<Parameter>& parameters, const std::vector<uint64_t>& limits) {
  Indices order(parameters.size());
  std::iota(order.begin(), order.end(), size_t{0});
  return assign(parameters, limits, order);
}

TEST(DdpBuckets, ABucketClosesOnceItHasAsManyBytesAsItsLimitOrMore) {
  const auto four = model_of({100, 100, 100, 100});  // 400 bytes each.
  EXPECT_EQ(assigned(four, {400}), (Groups{{0}, {1}, {2}, {3}}));
  EXPECT_EQ(assigned(four, {401}), (Groups{{0, 1}, {2, 3}}));
  EXPECT_EQ(assigned(four, {800}), (Groups{{0, 1}, {2, 3}}));
  EXPECT_EQ(assigned(four, {1300}), (Groups{{0, 1, 2, 3}}));
  EXPECT_EQ(assigned(four, {kNoLimit}), (Groups{{0, 1, 2, 3}}));
  EXPECT_EQ(assigned(four, {}), (Groups{{0, 1, 2, 3}}));
}

TEST(DdpBuckets, LimitsAreTakenOneAfterTheOtherAndTheLastRepeats) {
  EXPECT_EQ(assigned(model_of({100, 100, 100, 100, 100, 100}), {400, 800}), (Groups{{0}, {1, 2}, {3, 4}, {5}}));
}

TEST(DdpBuckets, EveryDtypeAndDeviceHasABucketAndALimitOfItsOwn) {
  auto parameters = model_of({100, 100, 100, 100, 100, 100});
  for (size_t odd : {1, 3, 5}) parameters[odd].dtype = DType::kF64;  // 800 bytes.
  EXPECT_EQ(assigned(parameters, {400, 800}), (Groups{{0}, {1}, {3}, {2, 4}, {5}}));
  auto devices = model_of({100, 100, 100, 100});
  devices[1].device = devices[2].device = 1;
  EXPECT_EQ(assigned(devices, {800}), (Groups{{1, 2}, {0, 3}}));
  EXPECT_EQ(assigned(devices, {kNoLimit}), (Groups{{0, 3}, {1, 2}}));
}

TEST(DdpBuckets, SparseParametersAreAloneAndUseNoLimit) {
  auto parameters = model_of({100, 100, 100, 100});
  parameters[1].sparse = true;
  EXPECT_EQ(assigned(parameters, {400, 800}), (Groups{{0}, {1}, {2, 3}}));
  EXPECT_EQ(assigned(parameters, {kNoLimit}), (Groups{{1}, {0, 2, 3}}));
}

TEST(DdpBuckets, TheFirstBucketsBeginWithTheLastParameters) {
  EXPECT_EQ(first_buckets(model_of({100, 100, 100, 100}), std::vector<uint64_t>{800}), (Groups{{2, 3}, {0, 1}}));
  auto mixed = model_of({100, 100, 100, 100});
  mixed[0].dtype = mixed[3].dtype = DType::kF64;
  EXPECT_EQ(first_buckets(mixed, std::vector<uint64_t>{800}), (Groups{{3}, {1, 2}, {0}}));
  EXPECT_EQ(first_buckets(mixed, std::vector<uint64_t>{kNoLimit}), (Groups{{1, 2}, {0, 3}}));
}

TEST(DdpBuckets, RebuiltBucketsFollowTheOrderOfTheGradients) {
  const auto parameters = model_of({100, 100, 100, 100, 100});
  const Indices order{4, 2, 3, 0, 1};
  EXPECT_EQ(rebuilt_buckets(parameters, std::vector<uint64_t>{400, 800}, order, false), (Groups{{4}, {2, 3}, {0, 1}}));
  EXPECT_EQ(rebuilt_buckets(parameters, std::vector<uint64_t>{400, 800}, order, true), (Groups{{4, 2}, {3, 0}, {1}}));
}

TEST(DdpBuckets, OfAnyModelEveryParameterIsInOneBucketOfItsKindWithoutGaps) {
  const uint64_t seed = base_seed();
  std::mt19937_64 random(seed);
  for (int round = 0; round < 300; ++round) {
    std::vector<Parameter> parameters = model_of(std::vector<int64_t>(1 + random() % 30, 1));
    for (Parameter& one : parameters) {
      one.shape = {static_cast<int64_t>(random() % 50)};
      one.dtype = random() % 3 == 0 ? DType::kF64 : DType::kF32;
      one.device = static_cast<int>(random() % 2);
      one.sparse = random() % 5 == 0;
    }
    const std::vector<uint64_t> limits{1 + random() % 300, 1 + random() % 300};
    Indices order(parameters.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    for (const Groups& groups :
         {first_buckets(parameters, limits), rebuilt_buckets(parameters, limits, order, random() % 2 == 0)}) {
      ASSERT_TRUE(is_partition(groups, parameters.size())) << "TEST_SEED=" << seed << " round " << round;
      const Layout layout(parameters, groups);
      EXPECT_EQ(layout.groups(), groups);
      for (size_t b = 0; b < groups.size(); ++b) {
        const Bucket& bucket = layout.buckets()[b];
        uint64_t bytes = 0;
        for (size_t parameter : bucket.parameters) {
          EXPECT_EQ(layout.slot(parameter).bucket, b);
          EXPECT_EQ(layout.offset(parameter), bytes);
          EXPECT_EQ(parameters[parameter].dtype, bucket.dtype);
          EXPECT_EQ(parameters[parameter].device, parameters[bucket.parameters[0]].device);
          bytes += parameters[parameter].bytes();
        }
        EXPECT_EQ(bucket.bytes(), bucket.sparse ? 0 : bytes);
        EXPECT_TRUE(!bucket.sparse || bucket.parameters.size() == 1);
      }
    }
  }
}

TEST(DdpBuckets, WhatIsNoPartitionIsSeen) {
  EXPECT_TRUE(is_partition({{1}, {0, 2}}, 3));
  EXPECT_FALSE(is_partition({{1}, {0}}, 3));
  EXPECT_FALSE(is_partition({{1}, {0, 1, 2}}, 3));
  EXPECT_FALSE(is_partition({{1}, {0, 3}}, 3));
  EXPECT_FALSE(is_partition({{0, 1, 2}, {}}, 3));
}

TEST(DdpBuckets, ParametersThatCannotBeReducedAreNamed) {
  Parameter parameter = model_of({3})[0];
  EXPECT_TRUE(check(parameter).ok());
  parameter.dtype = DType::kF8E4M3;
  EXPECT_NE(check(parameter).message().find("'p0' is f8e4m3"), std::string::npos) << check(parameter);
  parameter.dtype = DType::kF32;
  parameter.shape = {-1};
  EXPECT_NE(check(parameter).message().find("'p0'"), std::string::npos);
  parameter.shape = {int64_t{1} << 40, int64_t{1} << 40};
  EXPECT_FALSE(check(parameter).ok());
  parameter.shape = {2, 3};
  parameter.strides = {3};
  EXPECT_NE(check(parameter).message().find("2 dimensions and 1 strides"), std::string::npos);
}

}  // namespace
}  // namespace horo::ddp
