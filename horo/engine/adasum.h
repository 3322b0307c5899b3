// Adasum: gradients of which each is scaled down by what it has in common with the other, then added.
//
//   adasum(a, b) = (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b
//
// Of more than two ranks, neighbours are combined, then the results of neighbours, and so on; where a level has an odd
// number, the last passes on unchanged. (S. Maleki et al., "Scaling Distributed Training with Adaptive Summation",
// 2020.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "horo/base/dtype.h"

namespace horo::engine {

/// What two slices of the same tensor have in common.
struct Products {
  double dot = 0.0;    ///< a.b
  double left = 0.0;   ///< |a|^2
  double right = 0.0;  ///< |b|^2
};

/// In f64 and in a fixed order, so that all ranks and all machines get the same bits.
Products products(const std::byte* a, const std::byte* b, uint64_t count, DType dtype);

/// a = adasum(a, b), given the products of the whole tensors.
void combine(std::byte* a, const std::byte* b, uint64_t count, DType dtype, const Products& whole);

/// Half-open range of elements.
struct Range {
  uint64_t begin = 0, end = 0;
  uint64_t count() const { return end - begin; }
};

/// Which part of each tensor lies in elements [slice.begin, slice.end) of all tensors put together.
std::vector<Range> parts_in(const std::vector<uint64_t>& counts, Range slice);

}  // namespace horo::engine
