// Jobs that go on in place while the network is cut and ranks are killed: at most one side may.
//
// The production membership and quorum run on every rank; what a runtime does around them is modelled. A rank whose
// view has a quorum of the world it was in enters it; when all ranks of the view have, they are the next world, at
// once: a real one also has to run an operation, so this is the worst case.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace horo::sim {

struct PartitionOptions {
  uint64_t seed = 0;
  bool ignores_quorum = false;  ///< A planted bug: every side goes on.
};

struct PartitionOutcome {
  std::optional<std::string> violation;
  std::string scenario;
  uint64_t trace_hash = 0;
  uint64_t cuts = 0;
  uint64_t kills = 0;
  uint64_t refused = 0;  ///< Views that had no quorum.
  uint64_t worlds = 0;   ///< That came about after the first.
  uint64_t fenced = 0;
};

PartitionOutcome simulate_partition(const PartitionOptions& options);

}  // namespace horo::sim
