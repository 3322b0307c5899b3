// Metrics as text, in the format that Prometheus reads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "horo/engine/metrics.h"

namespace horo::engine {

/// What is true of the whole rank.
struct RankFacts {
  int rank = 0, size = 1;
  uint64_t epoch = 0;  ///< Changes of membership.
  uint64_t timeline_dropped = 0;
  std::string host;
};

/// The exposition format 0.0.4. Every metric has the label `rank`; kinds of operations appear once one was handed in.
std::string exposition(const Metrics& metrics, const RankFacts& facts);

/// `value` as it stands between the quotes of a label.
std::string label_text(std::string_view value);

}  // namespace horo::engine
