// Which units are run as one operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "horo/engine/tensor.h"

namespace horo::engine {

struct FusionRules {
  uint64_t threshold = 128 << 20;  ///< Bytes of one operation; 0: no two units are run together.
  bool across_groups = true;       ///< Whether units of several tensors may be run together with others.
};

/// Whether two tensors can be one operation.
bool fusible(const Tensor& a, const Tensor& b);
/// Whether two units can be: all their tensors.
bool fusible(const Unit& a, const Unit& b);

/// Indices of `units`, batch by batch. A batch begins with the first unit that is left and takes, looking ahead past
/// those it cannot take, every later one that fits.
std::vector<std::vector<size_t>> plan_fusion(const std::vector<const Unit*>& units, const FusionRules& rules);

}  // namespace horo::engine
