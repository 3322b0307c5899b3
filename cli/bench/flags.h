// The flags of `horo bench`.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/bench/options.h"

namespace horo::bench {

/// Words as typed; options() reads them.
struct Flags {
  std::string op;
  int ranks = 2;
  std::string sizes = "4,1K,64K,1M,16M,64M";
  std::string dtype = "f32";
  std::vector<std::string> variants;
  std::string json;
  std::string peers;
  int rounds = 5;
  int hosts = 1;
  std::string shape;
  std::string buffers = "ordinary";
  bool in_place = false;
  bool out_of_place = false;
  std::string transport = "auto";
  double seconds = 0.15;
  uint64_t seed = 1;
  uint64_t operations = 100'000;
  double idle_seconds = 10;
  std::string python = "python3";
  bool verbose = false;

  void add_to(CLI::App& command);
  Result<BenchOptions> options() const;
};

}  // namespace horo::bench
