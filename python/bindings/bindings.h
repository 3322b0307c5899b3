// What the files of the extension module share. One bind_<noun>.cc per noun.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "horo/api/horo.hpp"

namespace horo::python {

/// What operations under way read and write, after Python has dropped their handles. Under the interpreter's lock.
class Orphans {
 public:
  Orphans();
  void add(Handle handle, nanobind::object memory);
  /// Lets go of up to two that are done, so that they do not pile up; and of all.
  void sweep();
  void clear() { all_.clear(); }
  /// Whether this process was forked off the one that hands in, whose locks it must not touch.
  bool forked() const;

 private:
  struct Orphan {
    Handle handle;
    nanobind::object memory;
  };
  const int process_;
  std::vector<Orphan> all_;
};

/// A handle, and the objects whose memory its operation uses.
class Pending {
 public:
  Pending(Handle handle, nanobind::object memory, std::shared_ptr<Orphans> orphans);
  Pending(Pending&&) = default;
  ~Pending();

  Handle& handle() { return handle_; }
  const Handle& handle() const { return handle_; }
  /// False when it is not done by then; throws what it ended in. Others run meanwhile. With a stream of the device:
  /// what is put there later comes after it, and it need not be done yet.
  bool wait(double seconds, std::optional<uintptr_t> stream = std::nullopt);

 private:
  Handle handle_;
  nanobind::object memory_;
  std::shared_ptr<Orphans> orphans_;
};

/// A runtime, and what its operations use.
struct Job {
  explicit Job(const horo_runtime_options& options) : runtime(options) {}
  Runtime runtime;
  std::shared_ptr<Orphans> orphans = std::make_shared<Orphans>();
};

void bind_arrivals(nanobind::module_& module);
void bind_device(nanobind::module_& module);
void bind_door(nanobind::module_& module);
void bind_error(nanobind::module_& module);
void bind_reducer(nanobind::module_& module);
void bind_engine(nanobind::module_& module);
void bind_group(nanobind::module_& module, nanobind::class_<Job>& job);
void bind_handle(nanobind::module_& module);
void bind_runtime(nanobind::module_& module);
void bind_submit(nanobind::module_& module, nanobind::class_<Job>& job);
void bind_reduction(nanobind::module_& module, nanobind::class_<Job>& job);
void bind_tensor_reader(nanobind::module_& module);

}  // namespace horo::python
