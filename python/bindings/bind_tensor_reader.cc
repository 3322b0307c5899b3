#include "bindings.h"
#include "tensor_reader.h"

namespace nb = nanobind;

namespace horo::python {

namespace {

nb::tuple tuple_of(std::span<const int64_t> numbers) {
  nb::list all;
  for (int64_t number : numbers) all.append(number);
  return nb::tuple(all);
}

nb::object read(TensorReader& self, nb::handle tensor) {
  TensorView view;
  if (!self.read(tensor, view)) return nb::none();
  return nb::make_tuple(reinterpret_cast<uintptr_t>(view.data), view.dtype, tuple_of(view.shape),
                        tuple_of(view.strides), view.bytes, view.contiguous);
}

}  // namespace

void bind_tensor_reader(nb::module_& module) {
  nb::class_<TensorReader>(module, "TensorReader", "Looks at tensors of torch without its Python attributes.")
      .def(nb::init<nb::object, nb::object, nb::dict, bool>(), nb::arg("tensor_class"), nb::arg("strided"),
           nb::arg("dtypes"), nb::arg("exchange"))
      .def_prop_ro("exchanges", &TensorReader::exchanges)
      .def("read", &read, nb::arg("tensor").none(),
           "(address, dtype, shape, strides, bytes, contiguous), or None for what does not simply lie in memory.");
}

}  // namespace horo::python
