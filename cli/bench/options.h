// What `horo bench` was asked to do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/bench/protocol.h"

#include "horo/base/status.h"

namespace horo::bench {

enum class Buffers : uint8_t { kOrdinary, kLibrary, kBoth };
/// kUsual: allreduce and reduce in place, as frameworks call them; the others apart.
enum class Place : uint8_t { kUsual, kIn, kOut };

struct BenchOptions {
  Op op = Op::kAllreduce;
  int ranks = 2;
  std::vector<uint64_t> sizes;
  DType dtype = DType::kF32;
  /// Measured beside it in horo alone, with as many elements.
  std::vector<DType> more_dtypes;
  /// "HORO_CHECKSUM=0": each is one more job of horo, with this set.
  std::vector<std::string> variants;
  std::string json;  ///< A file; empty: none. "-": standard output.
  std::vector<std::string> peers;
  int rounds = 5;
  int hosts = 1;
  uint64_t bits_per_second = 0;
  Buffers buffers = Buffers::kOrdinary;
  Place place = Place::kUsual;
  std::string transport = "auto";
  double seconds = 0.15;  ///< Of one contender in one round of one size, about. Batches take as long again.
  uint64_t seed = 1;
  // Of the engine:
  uint64_t operations = 100'000;  ///< For the memory; 0: none.
  double idle_seconds = 10;
  std::string python = "python3";
  bool verbose = false;

  bool in_place() const;
};

/// "4", "64K", "1.5M", "2GiB": powers of 1024.
Result<uint64_t> parse_size(std::string_view word);
/// A list with commas.
Result<std::vector<uint64_t>> parse_sizes(std::string_view list);
/// "1gbit", "100mbit", "2.5gbit": powers of 1000, as tc means them.
Result<uint64_t> parse_rate(std::string_view word);
/// What cannot go together, with what to do.
Status validate(const BenchOptions& options);

}  // namespace horo::bench
