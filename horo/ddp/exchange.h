// What is done to a bucket between packing and copying out: operations of the group, and arithmetic between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "horo/base/status.h"
#include "horo/collective/operation.h"

namespace horo::ddp {

/// Runs step by step: next() prepares an operation and, when that has succeeded, is called again. On any thread, one
/// call at a time.
class Exchange {
 public:
  struct Step {
    collective::Operation operation;
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    uint64_t sent_bytes = 0;  ///< Of the allreduce that moves as much; for the statistics.
  };

  Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  virtual ~Exchange() = default;

  /// None: it is done.
  virtual Result<std::optional<Step>> next() = 0;
};

/// The same for all buckets of an iteration, and on all ranks.
struct Round {
  double factor = 1.0;     ///< What sums are multiplied by.
  uint64_t iteration = 0;  ///< Since the hook was chosen.
};

/// Reduces one bucket, again in every iteration.
class BucketExchange : public Exchange {
 public:
  /// Before the first next() of an iteration.
  virtual void begin(const Round& round) = 0;
  /// After begin(): in this iteration the gradient of a parameter is reduced where it lies.
  virtual void put(size_t /*parameter*/, std::byte* /*gradient*/) {}
};

/// Memory that peers on this host can read.
using Memory = std::shared_ptr<std::byte>;
using Allocate = std::function<Result<Memory>(uint64_t bytes)>;

inline collective::Operation allreduce_of(DType dtype, uint64_t count, double factor = 1.0) {
  collective::Operation operation;
  operation.kind = collective::Kind::kAllreduce;
  operation.dtype = dtype;
  operation.count = count;
  operation.prescale = factor;
  return operation;
}

/// One operation in the caller's memory.
class SingleExchange : public Exchange {
 public:
  explicit SingleExchange(Step step) : step_(std::move(step)) {}
  Result<std::optional<Step>> next() override { return std::exchange(step_, std::nullopt); }

 private:
  std::optional<Step> step_;
};

}  // namespace horo::ddp
