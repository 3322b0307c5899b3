// Reductions that come again in every step.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "bindings.h"

namespace horo::python {

/// An allreduce but for the memory.
struct Reduction {
  std::string name;
  int dtype, op;
  double prescale, postscale;
  std::vector<int64_t> shape;
  uintptr_t input = 0, output = 0;

  horo_tensor view() const;
  uint64_t bytes() const;
};

/// What was handed in one by one, to be waited for together. Keeps `memory` until all of it is done.
class Batch {
 public:
  Batch(nanobind::object memory, std::shared_ptr<Orphans> orphans)
      : memory_(std::move(memory)), orphans_(std::move(orphans)) {}
  Batch(Batch&&) = default;
  Batch(const Batch&) = delete;
  ~Batch();

  void submit_together(Runtime& runtime, const std::vector<const Reduction*>& reductions, int set);
  /// What is refused after the first is an outcome of the batch: the ones before it are under way.
  void submit_each(Runtime& runtime, const std::vector<const Reduction*>& reductions, int set, bool waits);
  bool done() const;
  /// False when not all are done by then. Throws the first failure, after the end of all.
  bool wait(double seconds);

 private:
  std::vector<Handle> handles_;
  std::exception_ptr refused_;
  nanobind::object memory_;
  std::shared_ptr<Orphans> orphans_;
};

/// `waits`: the caller waits for them next, and nothing happens to those that do not go `together` before.
Batch reduce(Job& job, const std::vector<const Reduction*>& reductions, int set, nanobind::object memory, bool together,
             bool waits);

}  // namespace horo::python
