// Runs any plan on any mesh.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "horo/base/deadline.h"
#include "horo/base/status.h"
#include "horo/collective/plan.h"
#include "horo/transport/mesh.h"

namespace horo::collective {

/// When the caller's output is written.
enum class Delivering : uint8_t {
  kAtEnd,      ///< By deliver().
  kEarly,      ///< Parts by run(), as soon as they are complete. Input and output must be apart.
  kExchanging  ///< As kEarly, where the output is the input: work keeps what it held, and a run that fails puts it back.
};

/// The memory a plan runs on. Input and output may be the same or overlap; work and scratch are apart from both.
/// (Work may be the output where the plan allows it: see docs/algorithms.md, "In place".)
struct Buffers {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* work = nullptr;     ///< Plan::work_bytes()
  std::byte* scratch = nullptr;  ///< Plan::scratch_bytes()
  Delivering delivering = Delivering::kAtEnd;
};

/// Used by one thread at a time, like its mesh.
class Executor {
 public:
  explicit Executor(transport::Mesh& mesh);

  /// Runs all phases of the operation that was opened with Mesh::begin(); the first error ends it. Afterwards work
  /// holds this member's result, except where it was exchanged.
  Status run(const Plan& plan, const Buffers& buffers, Deadline deadline);

  /// Writes to the caller's output what run() has not written: all, unless it has just succeeded. Call it once the
  /// operation is decided.
  void deliver(const Plan& plan, const Buffers& buffers);

  /// Bytes sent to each peer since construction.
  std::span<const uint64_t> sent_bytes() const { return sent_bytes_; }

 private:
  void post(const Plan& plan, const Buffers& buffers, std::span<const Transfer> transfers);
  Status run_phase(const Plan& plan, const Buffers& buffers, size_t phase, Deadline deadline);
  Status work(const Plan& plan, const Buffers& buffers, const Work& work, bool poke);
  Status deliver_complete(const Plan& plan, const Buffers& buffers, size_t phase, bool poke);

  transport::Mesh& mesh_;
  std::vector<uint64_t> sent_bytes_;
  std::vector<const std::byte*> sources_;
  size_t delivered_ = 0;  ///< Deliveries that run() has done of an operation that is not delivered yet.
};

}  // namespace horo::collective
