// PowerSGD against a plain implementation in f64, and what it promises.
#include "horo/ddp/power_sgd.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "horo/ddp/group_testing.h"
#include "horo/ddp/model_testing.h"

namespace horo::ddp {
namespace {

constexpr size_t kRows = 30, kColumns = 20;

/// A matrix, and a vector that stays exact.
std::vector<Parameter> matrix_and_vector() {
  auto parameters = model_of({0, 11});
  parameters[0].shape = {kRows, 4, 5};
  return parameters;
}

HookOptions options_of(int rank) {
  return {.kind = HookKind::kPowerSgd, .rank = rank, .start_iteration = 0, .seed = 5};
}

using Plain = std::vector<std::vector<double>>;  ///< Row by row.

Plain product(const Plain& a, const Plain& b) {
  Plain c(a.size(), std::vector<double>(b[0].size(), 0.0));
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t k = 0; k < b.size(); ++k) {
      for (size_t j = 0; j < b[0].size(); ++j) c[i][j] += a[i][k] * b[k][j];
    }
  }
  return c;
}

Plain transposed(const Plain& a) {
  Plain b(a[0].size(), std::vector<double>(a.size()));
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a[0].size(); ++j) b[j][i] = a[i][j];
  }
  return b;
}

void orthogonal(Plain& a) {
  for (size_t column = 0; column < a[0].size(); ++column) {
    for (size_t other = 0; other < column; ++other) {
      double dot = 0;
      for (const auto& row : a) dot += row[column] * row[other];
      for (auto& row : a) row[column] -= dot * row[other];
    }
    double norm = 0;
    for (const auto& row : a) norm += row[column] * row[column];
    for (auto& row : a) row[column] /= std::sqrt(norm);
  }
}

Plain plain_of(const float* values) {
  Plain matrix(kRows, std::vector<double>(kColumns));
  for (size_t i = 0; i < kRows * kColumns; ++i) matrix[i / kColumns][i % kColumns] = values[i];
  return matrix;
}

/// Every rank's errors, and the Q that they have in common.
struct Reference {
  std::vector<Plain> errors;
  Plain right;

  Plain reduce(const std::vector<std::vector<float>>& values) {
    Plain mean(kRows, std::vector<double>(kColumns, 0.0));
    std::vector<Plain> mine;
    for (size_t member = 0; member < values.size(); ++member) {
      Plain matrix = plain_of(values[member].data());
      for (size_t i = 0; i < kRows * kColumns; ++i) {
        double& value = matrix[i / kColumns][i % kColumns];
        if (!errors.empty()) value += errors[member][i / kColumns][i % kColumns];
        mean[i / kColumns][i % kColumns] += value / static_cast<double>(values.size());
      }
      mine.push_back(matrix);
    }
    orthogonal(right);
    Plain left = product(mean, right);
    orthogonal(left);
    right = product(transposed(mean), left);
    const Plain result = product(left, transposed(right));
    errors = mine;
    for (Plain& error : errors) {
      for (size_t i = 0; i < kRows * kColumns; ++i) {
        error[i / kColumns][i % kColumns] -= result[i / kColumns][i % kColumns];
      }
    }
    return result;
  }
};

/// The Q that the library begins with.
Plain first_right(int rank) {
  const auto parameters = matrix_and_vector();
  PowerSgdState state(options_of(rank), parameters);
  state.prepare(0, 0);
  Plain right(kColumns, std::vector<double>(static_cast<size_t>(rank)));
  for (size_t k = 0; k < static_cast<size_t>(rank); ++k) {
    for (size_t j = 0; j < kColumns; ++j) right[j][k] = state.of(0).right[k * kColumns + j];
  }
  return right;
}

void fill(Members& members, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  for (auto& values : members.values) {
    for (float& value : values) value = normal(random);
  }
}

TEST(DdpPowerSgd, OfRanksOneAndTwoIsWhatThePlainAlgorithmGivesWithWarmStartAndErrorFeedback) {
  for (int rank : {1, 2}) {
    std::mt19937_64 random(base_seed());
    Members members(3, matrix_and_vector(), options_of(rank));
    Reference reference{{}, first_right(rank)};
    for (uint64_t iteration = 0; iteration < 6; ++iteration) {
      fill(members, random);
      const auto before = members.values;
      const Plain expected = reference.reduce(before);
      members.reduce(iteration);
      for (size_t member = 0; member < 3; ++member) {
        ASSERT_EQ(members.values[member], members.values[0]) << "the same bits on all ranks";
      }
      for (size_t i = 0; i < kRows * kColumns; ++i) {
        ASSERT_NEAR(members.values[0][i], expected[i / kColumns][i % kColumns], 2e-4)
            << "TEST_SEED=" << base_seed() << " rank " << rank << " iteration " << iteration << " element " << i;
      }
      for (size_t i = kRows * kColumns; i < members.values[0].size(); ++i) {
        ASSERT_NEAR(members.values[0][i], (before[0][i] + before[1][i] + before[2][i]) / 3, 1e-5) << "exact";
      }
    }
    const auto thin = static_cast<uint64_t>(rank) * (kRows + kColumns);
    EXPECT_EQ(members.sent_bytes(), 6 * 4 * (thin + 11));
  }
}

TEST(DdpPowerSgd, WithErrorFeedbackWhatWasLeftOutComesLater) {
  std::mt19937_64 random(base_seed());
  Members members(2, matrix_and_vector(), options_of(2));
  fill(members, random);
  const auto same = members.values;
  std::vector<double> sum(kRows * kColumns, 0.0);
  constexpr int kIterations = 60;
  for (uint64_t iteration = 0; iteration < kIterations; ++iteration) {
    members.values[0] = same[0];
    members.values[1] = same[1];
    members.reduce(iteration);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += members.values[0][i];
  }
  double off = 0, size = 0;
  for (size_t i = 0; i < sum.size(); ++i) {
    const double mean = (same[0][i] + same[1][i]) / 2.0;
    off += std::pow(sum[i] / kIterations - mean, 2);
    size += mean * mean;
  }
  EXPECT_LT(std::sqrt(off / size), 0.25) << "rank 2 alone would leave most of a random matrix out";
}

TEST(DdpPowerSgd, AMatrixOfItsRankIsExactAfterOneIteration) {
  Members members(2, matrix_and_vector(), options_of(1));
  for (auto& values : members.values) {
    for (size_t i = 0; i < kRows * kColumns; ++i) {
      values[i] = static_cast<float>(i / kColumns + 1) * (static_cast<float>(i % kColumns) - 7.5F);
    }
  }
  const auto before = members.values[0];
  members.reduce(0);
  for (size_t i = 0; i < kRows * kColumns; ++i) ASSERT_NEAR(members.values[0][i], before[i], 1e-3);
}

TEST(DdpPowerSgd, TheFirstIterationsAreExact) {
  HookOptions options = options_of(1);
  options.start_iteration = 2;
  std::mt19937_64 random(base_seed());
  Members members(2, matrix_and_vector(), options);
  for (uint64_t iteration = 0; iteration < 3; ++iteration) {
    fill(members, random);
    const auto before = members.values;
    members.reduce(iteration);
    const bool exact = std::abs(members.values[0][7] - (before[0][7] + before[1][7]) / 2) < 1e-6;
    EXPECT_EQ(exact, iteration < 2);
  }
}

TEST(DdpPowerSgd, ZeroGradientsAndOnesThatAreNotFiniteDoNotSpoilTheNextIteration) {
  for (float bad : {0.0F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::mt19937_64 random(base_seed());
    Members members(2, matrix_and_vector(), options_of(2));
    fill(members, random);
    members.reduce(0);
    for (auto& values : members.values) std::fill(values.begin(), values.end(), bad);
    members.reduce(1);
    if (bad != 0) {
      EXPECT_FALSE(std::isfinite(members.values[0][0])) << "an overflow must be seen";
    }
    for (uint64_t iteration = 2; iteration < 5; ++iteration) {
      fill(members, random);
      members.reduce(iteration);
      bool all_zero = true;
      for (size_t i = 0; i < kRows * kColumns; ++i) {
        ASSERT_TRUE(std::isfinite(members.values[0][i])) << bad;
        all_zero = all_zero && members.values[0][i] == 0;
      }
      EXPECT_FALSE(all_zero);
      ASSERT_EQ(members.values[0], members.values[1]);
    }
  }
}

TEST(DdpPowerSgd, OnlyMatricesThatBecomeMuchShorterAreCompressed) {
  auto parameters = model_of({100, 0, 0, 0});
  parameters[1].shape = {100, 100};
  parameters[2].shape = {3, 3};
  parameters[3].shape = {1, 100};
  PowerSgdState state(options_of(2), parameters);
  EXPECT_EQ(state.of(0).rank, 0) << "a vector";
  EXPECT_EQ(state.of(1).rank, 2);
  EXPECT_EQ(state.of(2).rank, 0) << "(3 + 3) * 2 * 2 elements are not fewer than 9";
  EXPECT_EQ(state.of(3).rank, 0);
}

TEST(DdpPowerSgd, OrthogonalizeMakesColumnsOfLengthOneAndZeroWhereNothingIsLeft) {
  std::vector<float> columns(3 * 50);
  fill_random(columns, 3);
  std::copy_n(columns.begin(), 50, columns.begin() + 100);  // The third is the first again.
  EXPECT_FALSE(orthogonalize(columns, 50));
  const auto dot = [&](size_t a, size_t b) {
    double sum = 0;
    for (size_t i = 0; i < 50; ++i) sum += static_cast<double>(columns[a * 50 + i]) * columns[b * 50 + i];
    return sum;
  };
  EXPECT_NEAR(dot(0, 0), 1, 1e-5);
  EXPECT_NEAR(dot(1, 1), 1, 1e-5);
  EXPECT_NEAR(dot(0, 1), 0, 1e-5);
  EXPECT_EQ(dot(2, 2), 0);
}

TEST(DdpPowerSgd, RandomNumbersDependOnTheSeedAlone) {
  std::vector<float> first(100), again(100), other(100);
  fill_random(first, 1);
  fill_random(again, 1);
  fill_random(other, 2);
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
  for (float value : first) EXPECT_TRUE(value >= -1 && value < 1);
  EXPECT_EQ(first[0], 1116717 * 0x1p-23F) << "on every machine";
}

}  // namespace
}  // namespace horo::ddp
