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

/// The memory a plan runs on. Input and output may be the same or overlap; work and scratch are apart from both.
/// (Where the plan's algorithm allows it, work may be the output: see docs/algorithms.md, "In place".)
struct Buffers {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* work = nullptr;     ///< Plan::work_bytes()
  std::byte* scratch = nullptr;  ///< Plan::scratch_bytes()
};

/// Used by one thread at a time, like its mesh.
class Executor {
 public:
  explicit Executor(transport::Mesh& mesh);

  /// Runs all phases of the operation that was opened with Mesh::begin(); the first error ends it. Afterwards work
  /// holds this member's result; the caller's output is untouched.
  Status run(const Plan& plan, const Buffers& buffers, Deadline deadline);

  /// Writes the result to the caller's output. Call it once the operation is decided.
  void deliver(const Plan& plan, const Buffers& buffers) const;

  /// Bytes sent to each peer since construction.
  std::span<const uint64_t> sent_bytes() const { return sent_bytes_; }

 private:
  void post(const Plan& plan, const Buffers& buffers, std::span<const Transfer> transfers);
  Status work(const Plan& plan, const Buffers& buffers, const Work& work, bool poke);

  transport::Mesh& mesh_;
  std::vector<uint64_t> sent_bytes_;
  std::vector<const std::byte*> sources_;
};

}  // namespace horo::collective
