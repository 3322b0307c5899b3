#include "sim/simulation.h"

#include "horo/base/check.h"

namespace horo::sim {

Outcome simulate(const World::Options& options) {
  HORO_CHECK(options.ranks >= 2 && options.ranks <= 15, "a sum of 16^rank has room for 15 ranks");
  World world(options);
  world.run();
  return {world.checker().violation(), world.trace_hash(), world.counts(), world.scenario().to_string()};
}

}  // namespace horo::sim
