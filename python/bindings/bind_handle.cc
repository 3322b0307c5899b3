#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

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
  const horo_result result = nb::cast<Pending&>(self).handle().result(index);
  return nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(result.memory, {bytes}, self);
}

}  // namespace

void bind_handle(nb::module_& module) {
  nb::class_<Pending>(module, "Handle", "Tensors that were handed in.")
      .def("done", [](const Pending& self) { return self.handle().done(); })
      .def("wait", &Pending::wait, nb::arg("seconds"), nb::arg("stream") = nb::none(),
           "False when it is not done by then; raises what it ended in. With a stream of its device: what is put there "
           "later comes after it, and it need not be done yet.")
      .def("answer", [](const Pending& self) { return self.handle().answer(); })
      .def(
          "shape", [](const Pending& self, size_t index) { return shape_of(self.handle().result(index)); },
          nb::arg("index"))
      .def("memory", &memory_of, nb::arg("index"), nb::arg("bytes"))
      .def(
          "address",
          [](const Pending& self, size_t index) {
            return reinterpret_cast<uintptr_t>(self.handle().result(index).memory);
          },
          nb::arg("index"), "Of a result on a device; good as long as this handle.")
      .def(
          "received_splits",
          [](const Pending& self, size_t index) {
            const horo_result result = self.handle().result(index);
            return std::vector<uint64_t>(result.received_splits, result.received_splits + result.split_count);
          },
          nb::arg("index"));
}

}  // namespace horo::python
