// Adasum against a reference that knows all vectors: any number of ranks, every transport, process sets.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/runtime_job.h"

#include "horo/base/text.h"

namespace horo::test {
namespace {

using Vector = std::vector<double>;

/// The same on every rank, and nothing like the others' or at right angles to them.
Vector gradient(int rank, size_t count) {
  Vector vector(count);
  for (size_t i = 0; i < count; ++i) vector[i] = std::sin(0.7 * static_cast<double>(i) + rank + 1) + 0.1 * rank;
  return vector;
}

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

Vector pair(const Vector& a, const Vector& b) {
  const double common = dot(a, b), of_a = 1 - common / (2 * dot(a, a)), of_b = 1 - common / (2 * dot(b, b));
  Vector sum(a.size());
  for (size_t i = 0; i < a.size(); ++i) sum[i] = of_a * a[i] + of_b * b[i];
  return sum;
}

/// Neighbours, then the results of neighbours; a last one without a neighbour waits for the next level.
Vector reference(std::vector<Vector> vectors) {
  while (vectors.size() > 1) {
    std::vector<Vector> next;
    for (size_t i = 0; i + 1 < vectors.size(); i += 2) next.push_back(pair(vectors[i], vectors[i + 1]));
    if (vectors.size() % 2 == 1) next.push_back(vectors.back());
    vectors = std::move(next);
  }
  return vectors[0];
}

/// Tensors of different lengths in one operation, among the ranks of a set.
int compare(Runtime& runtime, int set, const std::vector<int>& ranks) {
  std::vector<std::vector<float>> mine;
  std::vector<Call> calls;
  const std::vector<size_t> counts{1, 7, 1000, 513};
  for (size_t count : counts) {
    const Vector vector = gradient(runtime.rank(), count);
    mine.emplace_back(vector.begin(), vector.end());
  }
  for (size_t i = 0; i < counts.size(); ++i) {
    calls.push_back(in_place(text("gradient ", i), mine[i], Reduction::kAdasum));
  }
  auto handle = runtime.submit(set, calls);
  REQUIRE_OK(handle.status());
  REQUIRE_OK(runtime.wait(set, *handle));
  for (size_t t = 0; t < counts.size(); ++t) {
    std::vector<Vector> all;
    for (int rank : ranks) {
      const Vector exact = gradient(rank, counts[t]);
      const std::vector<float> given(exact.begin(), exact.end());
      all.emplace_back(given.begin(), given.end());
    }
    const Vector expected = reference(all);
    for (size_t i = 0; i < counts[t]; ++i) {
      REQUIRE(std::fabs(mine[t][i] - expected[i]) <= 1e-5 * (1 + std::fabs(expected[i])));
    }
  }
  return 0;
}

int among_all(Runtime& runtime) {
  std::vector<int> everybody(static_cast<size_t>(runtime.size()));
  for (int rank = 0; rank < runtime.size(); ++rank) everybody[static_cast<size_t>(rank)] = rank;
  const int code = compare(runtime, 0, everybody);
  return code != 0 ? code : leave_together(runtime);
}

TEST(Adasum, IsTheReferencesForAnyNumberOfRanks) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    SCOPED_TRACE(text(ranks, " ranks"));
    auto job = start({.ranks = ranks}, among_all);
    ASSERT_TRUE(job);
    expect_zero(*job);
  }
}

TEST(Adasum, IsTheReferencesOverSocketsAndBetweenHosts) {
  for (int ranks : {2, 3, 5}) {
    SCOPED_TRACE(text(ranks, " ranks"));
    auto tcp = start({.ranks = ranks, .environment = {{"HORO_TRANSPORT", "tcp"}}}, among_all);
    ASSERT_TRUE(tcp);
    expect_zero(*tcp);
  }
  JobOptions hosts{.ranks = 5};
  hosts.per_rank = [](int rank) {
    return std::map<std::string, std::string, std::less<>>{{"HORO_HOST_ID", text("host", rank / 2)}};
  };
  auto mixed = start(hosts, among_all);
  ASSERT_TRUE(mixed);
  expect_zero(*mixed);
}

TEST(Adasum, IsTheReferencesInProcessSets) {
  auto job = start({.ranks = 4},
                   [](Runtime& runtime) {
                     const bool odd = runtime.rank() == 1;
                     if (!odd) REQUIRE(compare(runtime, 1, {0, 2, 3}) == 0);
                     if (odd || runtime.rank() == 3) REQUIRE(compare(runtime, 2, {1, 3}) == 0);
                     return leave_together(runtime);
                   },
                   {{0, 2, 3}, {1, 3}});
  ASSERT_TRUE(job);
  expect_zero(*job);
}

}  // namespace
}  // namespace horo::test
