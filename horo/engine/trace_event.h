// What the timeline is told: one step in the life of tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "horo/base/deadline.h"
#include "horo/base/dtype.h"
#include "horo/engine/tensor.h"

namespace horo::engine {

struct TraceTensor {
  std::string name;
  Kind kind = Kind::kBarrier;
  DType dtype = DType::kByte;
  uint64_t bytes = 0;
};

enum class TraceStep : uint8_t {
  kHandedIn,  ///< `tensors` of one unit.
  kReady,     ///< `ranks` have handed in the unit `words`.
  kAgreed,    ///< `tensors` are batch `batch`.
  kBegun,     ///< The batch has left the queue of its executor.
  kBegin,     ///< An activity on the batch begins: `words`.
  kEnd,       ///< It ends. `detail`, if there is one, is what was learnt meanwhile.
  kDone,      ///< The batch is over; `words` is what it ended in if that is an error.
  kFailed,    ///< `tensors` end without having been run: `words`.
  kCycle,     ///< The coordinator has closed its window.
  kEnded,     ///< The process set has ended: `words`.
};

struct TraceEvent {
  TraceStep step = TraceStep::kCycle;
  bool carries = false;     ///< kBegin and kEnd: the bytes move between ranks meanwhile.
  uint32_t generation = 0;  ///< Of the timeline that it was meant for.
  int set = 0;
  uint64_t batch = 0;
  Time at{};
  std::vector<TraceTensor> tensors;
  std::vector<uint32_t> part;  ///< kBegin and kEnd: the places in the batch that they are about; empty: all.
  std::vector<int> ranks;
  std::string words, detail;
};

}  // namespace horo::engine
