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
#include "horo/transport/undo.h"

namespace horo::collective {

/// The memory a plan runs on. Input and output may be the same or overlap; work and scratch are apart from both.
/// (Where the plan allows it, work may be the output: see docs/algorithms.md, "In place".)
struct Buffers {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* work = nullptr;     ///< Plan::work_bytes()
  std::byte* scratch = nullptr;  ///< Plan::scratch_bytes()
  /// Not null where work is the input: what that held, Plan::work_bytes(), is kept there, and put back by a run that
  /// fails.
  std::byte* kept = nullptr;
  /// The output is apart from the input: run() writes to it what is complete, while the rest is on its way.
  bool early = false;
};

/// Used by one thread at a time, like its mesh.
class Executor {
 public:
  explicit Executor(transport::Mesh& mesh);

  /// Runs all phases of the operation that was opened with Mesh::begin(); the first error ends it. Afterwards work
  /// holds this member's result.
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
  /// What phase `next` is the first to write to, but for receives that keep, before it begins.
  Status keep(const Plan& plan, const Buffers& buffers, size_t next, bool poke);
  Status deliver_complete(const Plan& plan, const Buffers& buffers, size_t phase, bool poke);
  Status copy(std::byte* into, const std::byte* from, size_t bytes, size_t whole, bool poke);

  transport::Mesh& mesh_;
  std::vector<uint64_t> sent_bytes_;
  std::vector<const std::byte*> sources_;
  transport::Undo undo_;
  size_t kept_ = 0;       ///< Overwrites whose old contents the last run has kept.
  size_t delivered_ = 0;  ///< Deliveries that run() has done of an operation that is not delivered yet.
};

}  // namespace horo::collective
