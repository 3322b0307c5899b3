// Reductions that come again in every step: prepared once, and handed in many at a time.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "reduction.h"

namespace nb = nanobind;

namespace horo::python {

horo_tensor Reduction::view() const {
  horo_tensor all = HORO_TENSOR_INIT;
  all.name = name.c_str();
  all.kind = HORO_ALLREDUCE;
  all.dtype = static_cast<horo_dtype>(dtype);
  all.op = static_cast<horo_reduce_op>(op);
  all.prescale = prescale;
  all.postscale = postscale;
  all.shape = shape.data();
  all.dimensions = shape.size();
  all.input = reinterpret_cast<const void*>(input);
  all.output = reinterpret_cast<void*>(output);
  return all;
}

uint64_t Reduction::bytes() const {
  uint64_t bytes = horo_dtype_size(static_cast<horo_dtype>(dtype));
  for (const int64_t extent : shape) bytes *= static_cast<uint64_t>(extent);
  return bytes;
}

namespace {

std::vector<horo_tensor> views_of(const std::vector<const Reduction*>& reductions) {
  std::vector<horo_tensor> views;
  views.reserve(reductions.size());
  for (const Reduction* one : reductions) views.push_back(one->view());
  return views;
}

}  // namespace

Batch::~Batch() {
  for (Handle& one : handles_) {
    if (orphans_->forked() || !one.done()) orphans_->add(std::move(one), memory_);
  }
}

void Batch::submit_together(Runtime& runtime, const std::vector<const Reduction*>& reductions, int set) {
  handles_.push_back(runtime.submit(views_of(reductions), set));
}

void Batch::submit_each(Runtime& runtime, const std::vector<const Reduction*>& reductions, int set, bool waits) {
  try {
    runtime.submit_each(views_of(reductions), handles_, waits, set);
  } catch (const Error&) {
    if (handles_.empty()) throw;
    refused_ = std::current_exception();
  }
}

bool Batch::done() const {
  return std::all_of(handles_.begin(), handles_.end(), [](const Handle& one) { return one.done(); });
}

bool Batch::wait(double seconds) {
  std::exception_ptr failure;
  {
    const nb::gil_scoped_release release;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    for (Handle& one : handles_) {
      const std::chrono::duration<double> left = limit - std::chrono::steady_clock::now();
      try {
        if (!one.wait_for(std::max(0.0, left.count()))) return false;
      } catch (...) {
        if (!failure) failure = std::current_exception();
      }
    }
  }
  if (!failure) failure = refused_;
  if (failure) std::rethrow_exception(failure);
  return true;
}

Batch reduce(Job& job, const std::vector<const Reduction*>& reductions, int set, nb::object memory, bool together,
             bool waits) {
  job.orphans->sweep();
  Batch batch(std::move(memory), job.orphans);
  if (together) {
    batch.submit_together(job.runtime, reductions, set);
  } else {
    batch.submit_each(job.runtime, reductions, set, waits);
  }
  return batch;
}

namespace {

/// Bytes that own the memory.
nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>> allocate(Job& job, size_t bytes) {
  auto memory = job.runtime.allocate<uint8_t>(bytes);
  uint8_t* address = memory.get();
  auto owner = std::make_unique<decltype(memory)>(std::move(memory));
  nb::capsule capsule(owner.get(), [](void* one) noexcept { delete static_cast<decltype(owner.get())>(one); });
  owner.release();
  return nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(address, {bytes}, capsule);
}

}  // namespace

void bind_reduction(nb::module_& module, nb::class_<Job>& job) {
  nb::class_<Reduction>(module, "Reduction", "An allreduce that is handed in again and again.")
      .def(
          "__init__",
          [](Reduction* self, std::string name, int dtype, int op, double prescale, double postscale,
             std::vector<int64_t> shape) {
            new (self) Reduction{std::move(name), dtype, op, prescale, postscale, std::move(shape)};
          },
          nb::arg("name"), nb::arg("dtype"), nb::arg("op"), nb::arg("prescale"), nb::arg("postscale"), nb::arg("shape"))
      .def_ro("dtype", &Reduction::dtype)
      .def(
          "point_to",
          [](Reduction& self, uintptr_t input, uintptr_t output) {
            self.input = input;
            self.output = output;
          },
          nb::arg("input"), nb::arg("output"));
  nb::class_<Batch>(module, "Batch", "What was handed in one by one, to be waited for together.")
      .def("done", &Batch::done)
      .def("wait", &Batch::wait, nb::arg("seconds"),
           "False when not all are done by then; raises the first failure, after the end of all.");
  job.def("reduce", &reduce, nb::arg("reductions"), nb::arg("process_set"), nb::arg("memory"), nb::arg("together"),
          nb::arg("waits") = false,
          "Hands in each by itself, or all as a group. `memory` is kept until they are done. `waits`: the caller waits "
          "for them next; nothing happens to those that do not go together before.")
      .def("allocate", &allocate, nb::arg("bytes"), "Memory that the other ranks of this host can read.");
}

}  // namespace horo::python
