// The data of a measurement: random small whole numbers, so that any order of summing gives the same bits, and every
// rank can check every result without asking the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cli/bench/protocol.h"

namespace horo::bench {

/// Repeats itself after kPeriod elements, a prime, so that no two pages of a tensor are alike. Rank and turn decide
/// where in the period a tensor begins.
class Pattern {
 public:
  static constexpr uint64_t kPeriod = 65537;

  /// False for dtypes without a sum (bool, bytes, fp8).
  static bool supports(DType dtype);
  Pattern(DType dtype, uint64_t seed, int ranks);

  /// The input of `rank` in turn `turn`.
  void fill(std::span<std::byte> tensor, int rank, uint64_t turn) const;
  /// Whether `output` is what `rank` must hold after `op` in that turn.
  bool holds(Op op, std::span<const std::byte> output, int rank, uint64_t turn);

 private:
  uint64_t shift(int rank, uint64_t turn) const;
  bool equals(std::span<const std::byte> part, const std::vector<std::byte>& tile, uint64_t start) const;
  /// The sum over all ranks, for one period.
  const std::vector<std::byte>& sum_of(uint64_t turn);

  DType dtype_;
  size_t size_;
  uint64_t seed_;
  int ranks_;
  std::vector<int8_t> digits_;
  std::vector<std::byte> tile_;  ///< digits_ as elements.
  std::vector<std::byte> sum_;
  uint64_t sum_turn_ = ~uint64_t{0};
};

}  // namespace horo::bench
