// What a rank has done, in numbers.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>

#include "horo/engine/histogram.h"
#include "horo/engine/tensor.h"

namespace horo::engine {

/// Only ever grows. Relaxed: a number may be seen before another one that was counted earlier.
class Counter {
 public:
  void add(uint64_t count = 1) { value_.fetch_add(count, std::memory_order_relaxed); }
  uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

/// Of one kind of operation in one process set.
struct KindMetrics {
  Counter handed_in;  ///< Tensors.
  Counter tensors;    ///< That succeeded.
  Counter errors;     ///< Tensors that failed.
  Counter bytes;      ///< Of the tensors that succeeded, as this rank handed them in.
  Counter batches;    ///< Operations that were run; each runs one tensor or more.
  Histogram latency;  ///< From the hand-in of a unit to its end, if it succeeded.
  Histogram wait;     ///< From the hand-in of a unit until all ranks had handed it in.
};

/// Of one process set.
struct SetMetrics {
  std::array<KindMetrics, kKindCount> kinds;
  Counter announced_by_number;  ///< Units that the cache knew.
  Counter announced_in_full;
  Counter messages_sent, messages_received;  ///< Of the negotiation, between neighbours in the tree.
  Counter stalls;                            ///< Reports about tensors that some ranks have not handed in; at the root.

  KindMetrics& of(Kind kind) { return kinds[static_cast<size_t>(kind)]; }
  const KindMetrics& of(Kind kind) const { return kinds[static_cast<size_t>(kind)]; }
};

/// Thread-safe. Memory is bounded: sets with numbers from kMostSets on are counted together, as number kMostSets. A set
/// that takes the number of one that was removed counts on.
class Metrics {
 public:
  static constexpr int kMostSets = 64;

  Metrics() = default;
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  /// Lives as long as this.
  SetMetrics& set(int number);
  /// Null for a set that never was.
  const SetMetrics* find(int number) const;
  std::map<int, const SetMetrics*> all() const;

 private:
  std::array<std::atomic<SetMetrics*>, kMostSets + 1> sets_{};
};

}  // namespace horo::engine
