// One rank of `horo bench engine`: runs all of its phases and writes down what it saw.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

namespace horo::bench {

struct EngineRankOptions {
  std::string folder;        ///< Where rank N writes N.json; empty: joins, meets the others, leaves.
  int rounds = 5;            ///< In each of which both paths, and both ways to hand in, have their turn.
  uint64_t operations = 0;   ///< For the memory.
  double idle_seconds = 10;  ///< How long nobody calls anything.
  uint64_t seed = 1;         ///< Of the orders in which ranks hand in.
};

/// The exit code.
int run_engine_rank(const EngineRankOptions& options);

}  // namespace horo::bench
