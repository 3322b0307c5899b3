#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>

#include "bindings.h"

namespace nb = nanobind;

namespace horo::python {

namespace {

nb::tuple shape_of(const horo_result& result) {
  nb::list shape;
  for (size_t i = 0; i < result.dimensions; ++i) shape.append(result.shape[i]);
  return nb::tuple(shape);
}

/// Bytes that keep the handle, which owns them, alive.
nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>> memory_of(const nb::object& self, size_t index, size_t bytes) {
  const horo_result result = nb::cast<Handle&>(self).result(index);
  return nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(result.memory, {bytes}, self);
}

}  // namespace

bool Batch::done() const {
  return std::all_of(handles.begin(), handles.end(), [](const Handle& one) { return one.done(); });
}

bool Batch::wait_for(double seconds) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::exception_ptr failure;
  for (Handle& one : handles) {
    const std::chrono::duration<double> left = limit - std::chrono::steady_clock::now();
    try {
      if (!one.wait_for(std::max(0.0, left.count()))) return false;
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  }
  if (!failure) failure = refused;
  if (failure) std::rethrow_exception(failure);
  return true;
}

void bind_handle(nb::module_& module) {
  nb::class_<Batch>(module, "Batch", "Tensors that were handed in one by one, to be waited for together.")
      .def("done", &Batch::done)
      .def("wait", &Batch::wait_for, nb::arg("seconds"), nb::call_guard<nb::gil_scoped_release>(),
           "False when not all are done by then; raises the first failure, after the end of all.");
  nb::class_<Handle>(module, "Handle", "Tensors that were handed in.")
      .def("done", &Handle::done)
      .def("wait", &Handle::wait_for, nb::arg("seconds"), nb::call_guard<nb::gil_scoped_release>(),
           "False when it is not done by then; raises what it ended in.")
      .def("answer", &Handle::answer)
      .def(
          "shape", [](const Handle& self, size_t index) { return shape_of(self.result(index)); }, nb::arg("index"))
      .def("memory", &memory_of, nb::arg("index"), nb::arg("bytes"))
      .def(
          "received_splits",
          [](const Handle& self, size_t index) {
            const horo_result result = self.result(index);
            return std::vector<uint64_t>(result.received_splits, result.received_splits + result.split_count);
          },
          nb::arg("index"));
}

}  // namespace horo::python
