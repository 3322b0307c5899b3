// What autotune may change while a job runs.
#pragma once

#include <cstdint>

#include "horo/base/deadline.h"
#include "horo/collective/operation.h"

namespace horo::engine {

/// Which ways the operations of a batch take. Equal on all members.
struct Ways {
  collective::Way allreduce, allgather;

  bool are_usual() const { return allreduce.is_usual() && allgather.is_usual(); }
  collective::Way of(collective::Kind kind) const {
    if (kind == collective::Kind::kAllreduce) return allreduce;
    return kind == collective::Kind::kAllgather ? allgather : collective::Way{};
  }
  friend bool operator==(const Ways&, const Ways&) = default;
};

struct Tuning {
  uint64_t threshold = 128 << 20;                  ///< HORO_FUSION_THRESHOLD
  Duration window = std::chrono::milliseconds(1);  ///< HORO_GATHER_WINDOW
  Ways ways;
  friend bool operator==(const Tuning&, const Tuning&) = default;
};

}  // namespace horo::engine
