// The order of measuring: for each size, rounds in which every contender has its turn.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/bench/contender.h"
#include "cli/bench/options.h"

namespace horo::bench {

/// One thing that takes turns.
struct Lane {
  std::string name;   ///< "horo", "openmpi", "copy", "stream"
  std::string label;  ///< What a table says: "horo, library buffers"
  Contender* contender = nullptr;
  Op op = Op::kAllreduce;
  DType dtype = DType::kF32;
  bool library = false;
  bool in_place = false;
  bool is_limit = false;  ///< "copy", "stream": what the others are compared with.
};

struct Turn {
  Sample latency;
  Sample batch;  ///< Empty for large sizes.
  bool disturbed = false;
};

struct LaneResult {
  const Lane* lane = nullptr;
  std::string left_out;  ///< Why there is nothing, when there is nothing.
  uint64_t bytes = 0;    ///< Of its tensor: as many elements as the others', which may be wider.
  int iterations = 0;
  int batch = 0;
  std::vector<Turn> turns;  ///< One per round.
};

struct SizeResult {
  uint64_t asked_bytes = 0;
  uint64_t bytes = 0;  ///< Of the tensor that was measured.
  std::vector<LaneResult> lanes;
  int rounds = 0;
  std::vector<bool> disturbed;  ///< By round.
  double taken = 0;             ///< Processors that something else had in the worst turn that was disturbed.
  double stolen = 0;            ///< The same for the hypervisor.
  /// The rounds that count: the quiet ones, or all when less than half of what was asked for was quiet.
  std::vector<size_t> counted() const;
  int wanted = 0;
};

using Progress = std::function<void(const std::string&)>;

/// An error only when horo itself fails; a peer that does is left out from then on, with the reason.
Result<std::vector<SizeResult>> measure_all(const BenchOptions& options, const std::vector<Lane>& lanes,
                                            const Progress& progress);

}  // namespace horo::bench
