// The built-in hooks against plain arithmetic.
#include "horo/ddp/hooks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "horo/ddp/group_testing.h"
#include "horo/ddp/int8.h"
#include "horo/ddp/model_testing.h"

namespace horo::ddp {
namespace {

std::vector<Parameter> three_tensors() {
  auto parameters = model_of({0, 0, 0, 0});
  parameters[0].shape = {37};
  parameters[1].shape = {40, 25};
  parameters[2].shape = {};
  parameters[3].shape = {0, 4};
  return parameters;
}

void fill(Members& members, std::mt19937_64& random, float scale = 1.0F) {
  std::normal_distribution<float> normal;
  for (auto& values : members.values) {
    for (float& value : values) value = normal(random) * scale;
  }
}

std::vector<double> averages(const std::vector<std::vector<float>>& values) {
  std::vector<double> sum(values[0].size(), 0.0);
  for (const auto& member : values) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += member[i];
  }
  for (double& value : sum) value /= static_cast<double>(values.size());
  return sum;
}

void expect_same_bits(const Members& members) {
  for (const auto& values : members.values) {
    ASSERT_EQ(std::memcmp(values.data(), members.values[0].data(), values.size() * sizeof(float)), 0);
  }
}

/// Largest absolute value of elements [begin, end).
double largest_of(const std::vector<float>& values, uint64_t begin, uint64_t end) {
  double most = 0;
  for (uint64_t i = begin; i < end; ++i) most = std::max(most, std::abs(static_cast<double>(values[i])));
  return most;
}

TEST(DdpHooks, AllreduceAveragesAndSendsAllBytes) {
  const uint64_t seed = base_seed();
  std::mt19937_64 random(seed);
  Members members(3, three_tensors(), {});
  fill(members, random);
  const auto expected = averages(members.values);
  members.reduce(0);
  expect_same_bits(members);
  for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(members.values[0][i], expected[i], 1e-6);
  EXPECT_EQ(members.sent_bytes(), members.bucket().bytes());
}

TEST(DdpHooks, HalvesSendHalfTheBytesAndAreOffByTheirRounding) {
  for (const auto& [kind, ulp] : {std::pair{HookKind::kF16, 0x1p-11}, std::pair{HookKind::kBF16, 0x1p-8}}) {
    std::mt19937_64 random(base_seed());
    Members members(4, three_tensors(), {.kind = kind});
    fill(members, random);
    const auto before = members.values;
    const auto expected = averages(before);
    members.reduce(0);
    expect_same_bits(members);
    for (size_t i = 0; i < expected.size(); ++i) {
      double size = std::abs(expected[i]);
      for (const auto& values : before) size += std::abs(static_cast<double>(values[i])) / 4;
      ASSERT_NEAR(members.values[0][i], expected[i], size * ulp + 1e-7) << "TEST_SEED=" << base_seed();
    }
    EXPECT_EQ(members.sent_bytes(), members.bucket().bytes() / 2);
  }
}

TEST(DdpHooks, EightBitsSendAQuarterAndStayWithinTheDocumentedBound) {
  std::mt19937_64 random(base_seed());
  for (int ranks : {1, 2, 3, 4, 7}) {
    Members members(ranks, three_tensors(), {.kind = HookKind::kInt8});
    for (int round = 0; round < 20; ++round) {
      fill(members, random, static_cast<float>(std::pow(10.0, round - 10)));
      const auto before = members.values;
      const auto expected = averages(before);
      const uint64_t sent = members.sent_bytes();
      members.reduce(0);
      expect_same_bits(members);
      const Bucket& bucket = members.bucket();
      for (size_t tensor = 0; tensor < bucket.parameters.size(); ++tensor) {
        const uint64_t begin = bucket.begins[tensor];
        const uint64_t end = tensor + 1 < bucket.begins.size() ? bucket.begins[tensor + 1] : bucket.elements;
        double mean = 0;
        for (const auto& values : before) mean += largest_of(values, begin, end) / ranks;
        for (uint64_t i = begin; i < end; ++i) {
          ASSERT_LE(std::abs(members.values[0][i] - expected[i]), mean / 127 * 1.0001) << "TEST_SEED=" << base_seed();
        }
      }
      const uint64_t scales = 4 * (bucket.parameters.size() + static_cast<uint64_t>(ranks));
      EXPECT_LE(members.sent_bytes() - sent, bucket.bytes() / 4 + scales + 3 * static_cast<uint64_t>(ranks));
    }
  }
}

TEST(DdpHooks, EightBitsTurnATensorWithAValueThatIsNotFiniteIntoNaNAndLeaveTheOthers) {
  for (float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::mt19937_64 random(base_seed());
    Members members(3, three_tensors(), {.kind = HookKind::kInt8});
    fill(members, random);
    members.values[1][50] = bad;  // In the second tensor.
    members.reduce(0);
    for (const auto& values : members.values) {
      for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(std::isnan(values[i]), i >= 37 && i < 1037) << i;
    }
  }
}

TEST(DdpHooks, EightBitsKeepZerosAndTheTiniestNumbersFinite) {
  Members members(2, three_tensors(), {.kind = HookKind::kInt8});
  for (auto& values : members.values) std::fill(values.begin(), values.end(), 0.0F);
  members.values[0][3] = std::numeric_limits<float>::denorm_min();
  members.reduce(0);
  for (float value : members.values[1]) EXPECT_EQ(value, 0.0F);
}

TEST(DdpHooks, QuantizedValuesAreTheNearestOnes) {
  std::mt19937_64 random(base_seed());
  std::vector<float> values(1000);
  for (float& value : values) value = std::uniform_real_distribution<float>(-3, 3)(random);
  const float most = largest(values.data(), values.size());
  std::vector<int8_t> quantized(values.size());
  quantize(quantized.data(), values.data(), values.size(), most);
  std::vector<float> back(values.size());
  dequantize(back.data(), quantized.data(), values.size(), most);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(most, largest_of(values, 0, values.size()));
    ASSERT_NEAR(quantized[i], values[i] * 127.0 / most, 0.5001);
    ASSERT_NEAR(back[i], values[i], most / 254 * 1.001);
  }
}

TEST(DdpHooks, OptionsThatMakeNoSenseAreRefused) {
  EXPECT_TRUE(check(HookOptions{}).ok());
  EXPECT_FALSE(check(HookOptions{.rank = 0}).ok());
  EXPECT_FALSE(check(HookOptions{.min_compression_rate = -1}).ok());
  EXPECT_FALSE(check(HookOptions{.min_compression_rate = std::nan("")}).ok());
  EXPECT_FALSE(check(HookOptions{.kind = static_cast<HookKind>(6)}).ok());
}

}  // namespace
}  // namespace horo::ddp
