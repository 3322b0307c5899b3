#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"

namespace nb = nanobind;

namespace horo::python {

horo_tensor Tensor::view() const {
  horo_tensor all = HORO_TENSOR_INIT;
  all.name = name.c_str();
  all.kind = static_cast<horo_kind>(kind);
  all.dtype = static_cast<horo_dtype>(dtype);
  all.op = static_cast<horo_reduce_op>(op);
  all.root = root;
  all.prescale = prescale;
  all.postscale = postscale;
  all.shape = shape.data();
  all.dimensions = shape.size();
  all.input = reinterpret_cast<const void*>(input);
  all.output = reinterpret_cast<void*>(output);
  all.splits = splits.empty() ? nullptr : splits.data();
  all.split_count = splits.size();
  return all;
}

namespace {

nb::dict kinds() {
  nb::dict all;
  all["allreduce"] = static_cast<int>(HORO_ALLREDUCE);
  all["allgather"] = static_cast<int>(HORO_ALLGATHER);
  all["broadcast"] = static_cast<int>(HORO_BROADCAST);
  all["alltoall"] = static_cast<int>(HORO_ALLTOALL);
  all["reducescatter"] = static_cast<int>(HORO_REDUCESCATTER);
  all["barrier"] = static_cast<int>(HORO_BARRIER);
  return all;
}

/// By the names that NumPy and ml_dtypes give them.
nb::dict dtypes() {
  constexpr std::pair<const char*, horo_dtype> kAll[] = {
      {"uint8", HORO_U8},          {"int8", HORO_I8},       {"uint16", HORO_U16},      {"int16", HORO_I16},
      {"uint32", HORO_U32},        {"int32", HORO_I32},     {"uint64", HORO_U64},      {"int64", HORO_I64},
      {"float16", HORO_F16},       {"bfloat16", HORO_BF16}, {"float32", HORO_F32},     {"float64", HORO_F64},
      {"bool", HORO_BOOL},         {"complex64", HORO_C64}, {"complex128", HORO_C128}, {"float8_e4m3fn", HORO_F8E4M3},
      {"float8_e5m2", HORO_F8E5M2}};
  nb::dict all;
  for (const auto& [name, number] : kAll) all[name] = static_cast<int>(number);
  return all;
}

nb::dict reductions() {
  nb::dict all;
  all["sum"] = static_cast<int>(HORO_SUM);
  all["average"] = static_cast<int>(HORO_AVERAGE);
  all["min"] = static_cast<int>(HORO_MIN);
  all["max"] = static_cast<int>(HORO_MAX);
  all["product"] = static_cast<int>(HORO_PRODUCT);
  all["adasum"] = static_cast<int>(HORO_ADASUM);
  return all;
}

}  // namespace

void bind_tensor(nb::module_& module) {
  nb::class_<Tensor>(module, "Tensor", "A named tensor as it is handed in; the memory is the caller's.")
      .def(
          "__init__",
          [](Tensor* self, std::string name, int kind, int dtype, int op, int root, double prescale, double postscale,
             std::vector<int64_t> shape, uintptr_t input, uintptr_t output, std::vector<uint64_t> splits) {
            new (self)
                Tensor{std::move(name),  kind, dtype, op, root, prescale, postscale, std::move(shape), input, output,
                       std::move(splits)};
          },
          nb::arg("name"), nb::arg("kind"), nb::arg("dtype"), nb::arg("op"), nb::arg("root"), nb::arg("prescale"),
          nb::arg("postscale"), nb::arg("shape"), nb::arg("input"), nb::arg("output"), nb::arg("splits"))
      .def_ro("dtype", &Tensor::dtype)
      .def(
          "point_to", [](Tensor& self, uintptr_t address) { self.input = self.output = address; }, nb::arg("address"));
  module.attr("KINDS") = kinds();
  module.attr("DTYPES") = dtypes();
  module.attr("REDUCTIONS") = reductions();
}

}  // namespace horo::python
