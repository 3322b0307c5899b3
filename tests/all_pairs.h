// Few cases in which every pair of values of any two parameters occurs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace horo::test {

/// One value per parameter: indices below the parameter's size.
using Choice = std::vector<int>;

/// Whether a pair of values can occur together in a case at all, and whether a whole case may.
struct PairRules {
  std::function<bool(size_t first, int a, size_t second, int b)> pair;
  std::function<bool(const Choice&)> whole;
};

/// The same cases for the same seed. Throws nothing away silently: `left_out` counts pairs that no case could hold.
std::vector<Choice> all_pairs(const std::vector<int>& sizes, uint64_t seed, const PairRules& rules,
                              size_t* left_out = nullptr);

}  // namespace horo::test
