// One seeded run of a small job under faults, with the product's own membership code.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sim/world.h"

namespace horo::sim {

struct Outcome {
  std::optional<std::string> violation;
  uint64_t trace_hash = 0;
  World::Counts counts;
  std::string scenario;
};

/// The same options give the same outcome, on every machine. 2 to 15 ranks.
Outcome simulate(const World::Options& options);

}  // namespace horo::sim
