// What one rank handed in: tensors with their memory, and the handle that tells when they are done.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "horo/base/deadline.h"
#include "horo/base/status.h"
#include "horo/device/device.h"
#include "horo/engine/tensor.h"

namespace horo::engine {

/// Where a result of unknown size goes: called on a thread of the engine with the shape; returns the memory.
using Allocate = std::function<Result<std::byte*>(const std::vector<int64_t>& shape)>;

/// A tensor with this rank's memory.
struct Call {
  Tensor tensor;
  const std::byte* input = nullptr;
  /// May be the input. Null: the engine allocates the result, or asks `allocate` to.
  std::byte* output = nullptr;
  Allocate allocate;
  /// Alltoall: rows for every member; empty: equal shares.
  std::vector<uint64_t> splits;
  device::Where where = {};  ///< Of the input and the output.
};

/// Says what is wrong with the memory and the splits of calls.
Status check_calls(const std::vector<Call>& calls, int members, int member);

/// What came out of one call.
struct TensorResult {
  std::vector<int64_t> shape;
  std::byte* memory = nullptr;
  std::shared_ptr<std::byte> owner;       ///< Set when the engine allocated the memory.
  std::vector<uint64_t> received_splits;  ///< Alltoall, allgather: rows of each member.
};

/// Thread-safe. The memory of the calls must stay valid until it is done.
class Submission {
 public:
  /// Called once, on a thread of the engine; may hand in more, must not wait.
  using Callback = std::function<void(const Submission&)>;

  /// `unit` is what the calls ask for, or null: it is made then.
  Submission(std::vector<Call> calls, Callback callback, UnitPtr unit = nullptr);

  /// What the calls ask for.
  const Unit& unit() const { return *unit_; }
  const UnitPtr& shared_unit() const { return unit_; }
  std::vector<Call>& calls() { return calls_; }
  TensorResult& result(size_t index) { return results_[index]; }
  const TensorResult& result(size_t index) const { return results_[index]; }
  size_t size() const { return calls_.size(); }
  Time handed_in() const { return handed_in_; }

  bool done() const { return done_.load(std::memory_order_acquire); }
  /// Of a submission that is done.
  const Status& status() const { return status_; }
  /// A number that goes with the outcome: the last rank that joined, the number of a new process set.
  int64_t answer() const { return answer_; }
  void finish(const Status& status, int64_t answer = 0);
  /// All of it is in queues of its device, and the results have their shapes and places. Once at most, before finish().
  void promise(const device::EventHandle& result);
  /// Null before that, and where no such thing is told.
  device::EventHandle promised() const;
  /// What is waited for.
  enum class Until : uint8_t { kDone, kPromised };
  bool has_come(Until until) const { return done() || (until == Until::kPromised && promised() != nullptr); }
  /// False at the deadline.
  bool wait(Deadline deadline, Until until = Until::kDone) const;

 private:
  std::vector<Call> calls_;
  UnitPtr unit_;
  std::vector<TensorResult> results_;
  Callback callback_;
  const Time handed_in_ = Clock::now();
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::atomic<bool> done_{false};  ///< Set when all else is, under the mutex.
  std::atomic<bool> is_promised_{false};
  device::EventHandle promised_;  ///< Written once, before is_promised_.
  Status status_;
  int64_t answer_ = 0;
};

using Handle = std::shared_ptr<Submission>;

UnitPtr unit_of(const std::vector<Call>& calls);

}  // namespace horo::engine
