#include "tests/all_pairs.h"

#include <optional>
#include <random>
#include <set>
#include <tuple>

namespace horo::test {

namespace {

constexpr int kTries = 40;

using Pair = std::tuple<size_t, int, size_t, int>;

std::set<Pair> pairs_of(const Choice& choice) {
  std::set<Pair> pairs;
  for (size_t i = 0; i < choice.size(); ++i) {
    for (size_t j = i + 1; j < choice.size(); ++j) pairs.insert({i, choice[i], j, choice[j]});
  }
  return pairs;
}

/// A random case that holds `wanted`; none if it breaks a rule.
std::optional<Choice> case_with(const Pair& wanted, const std::vector<int>& sizes, const PairRules& rules,
                                std::mt19937_64& random) {
  Choice choice;
  for (int size : sizes) choice.push_back(static_cast<int>(random() % static_cast<uint64_t>(size)));
  const auto& [i, a, j, b] = wanted;
  choice[i] = a;
  choice[j] = b;
  for (const auto& [first, x, second, y] : pairs_of(choice)) {
    if (!rules.pair(first, x, second, y)) return std::nullopt;
  }
  if (!rules.whole(choice)) return std::nullopt;
  return choice;
}

size_t covered_by(const Choice& choice, const std::set<Pair>& open) {
  size_t count = 0;
  for (const Pair& pair : pairs_of(choice)) count += open.count(pair);
  return count;
}

}  // namespace

std::vector<Choice> all_pairs(const std::vector<int>& sizes, uint64_t seed, const PairRules& rules, size_t* left_out) {
  std::mt19937_64 random(seed);
  std::set<Pair> open;
  for (size_t i = 0; i < sizes.size(); ++i) {
    for (size_t j = i + 1; j < sizes.size(); ++j) {
      for (int a = 0; a < sizes[i]; ++a) {
        for (int b = 0; b < sizes[j]; ++b) {
          if (rules.pair(i, a, j, b)) open.insert({i, a, j, b});
        }
      }
    }
  }
  std::vector<Choice> cases;
  if (left_out != nullptr) *left_out = 0;
  while (!open.empty()) {
    auto wanted = open.begin();
    std::advance(wanted, static_cast<std::ptrdiff_t>(random() % open.size()));
    std::optional<Choice> best;
    size_t most = 0;
    for (int attempt = 0; attempt < kTries || (!best && attempt < 100 * kTries); ++attempt) {
      auto choice = case_with(*wanted, sizes, rules, random);
      const size_t covers = choice ? covered_by(*choice, open) : 0;
      if (covers > most) best = std::move(choice);
      most = std::max(most, covers);
    }
    if (!best) {
      if (left_out != nullptr) ++*left_out;
      open.erase(wanted);
      continue;
    }
    for (const Pair& pair : pairs_of(*best)) open.erase(pair);
    cases.push_back(std::move(*best));
  }
  return cases;
}

}  // namespace horo::test
