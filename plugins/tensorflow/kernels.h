// The kernels of the operations.
#pragma once

#include "plugins/tensorflow/api.h"

#include "horo/api/horo.h"

namespace horo::tensorflow {

/// Numbers about this rank, as operations of a graph.
enum class Fact { kSize, kRank, kLocalSize, kLocalRank, kIncluded, kJoin };

/// How a node of an operation is made and run. `api` is the one that register_all() was given.
struct KernelFunctions {
  Create create;
  Compute compute;             ///< Waits for the result.
  ComputeAsync compute_async;  ///< Null for facts.
  Delete destroy;
};

KernelFunctions kernel_of(horo_kind kind);
KernelFunctions kernel_of(Fact fact);

/// The one that kernels use; set once, before any of them is made.
const Api*& kernel_api();

}  // namespace horo::tensorflow
