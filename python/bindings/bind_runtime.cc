#include <nanobind/stl/vector.h>

#include "bindings.h"

namespace nb = nanobind;

namespace horo::python {

namespace {

void start(Runtime* self, const std::vector<std::vector<int>>& sets, const Runtime* predecessor) {
  std::vector<const int*> ranks;
  std::vector<size_t> sizes;
  for (const std::vector<int>& set : sets) {
    ranks.push_back(set.data());
    sizes.push_back(set.size());
  }
  horo_runtime_options options = HORO_RUNTIME_OPTIONS_INIT;
  options.set_ranks = ranks.data();
  options.set_sizes = sizes.data();
  options.set_count = sets.size();
  options.predecessor = predecessor == nullptr ? nullptr : predecessor->get();
  const nb::gil_scoped_release release;
  new (self) Runtime(options);
}

Handle submit(Runtime& self, const std::vector<const Tensor*>& tensors, int set) {
  std::vector<horo_tensor> views;
  views.reserve(tensors.size());
  for (const Tensor* tensor : tensors) views.push_back(tensor->view());
  return self.submit(views, set);
}

}  // namespace

void bind_runtime(nb::module_& module) {
  using Unlocked = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<Runtime>(module, "Runtime", "This process's place in a job.")
      .def("__init__", &start, nb::arg("process_sets"), nb::arg("predecessor").none())
      .def("shutdown", &Runtime::shutdown, Unlocked())
      .def("rank", &Runtime::rank)
      .def("size", &Runtime::size)
      .def("local_rank", &Runtime::local_rank)
      .def("local_size", &Runtime::local_size)
      .def("cross_rank", &Runtime::cross_rank)
      .def("cross_size", &Runtime::cross_size)
      .def("is_homogeneous", &Runtime::is_homogeneous)
      .def("submit", &submit, nb::arg("tensors"), nb::arg("process_set"))
      .def("join", &Runtime::join, nb::arg("process_set"))
      .def("add_set", &Runtime::add_set, nb::arg("ranks"), Unlocked())
      .def("remove_set", &Runtime::remove_set, nb::arg("process_set"), Unlocked())
      .def("set_numbers", &Runtime::set_numbers)
      .def("set_ranks", &Runtime::set_ranks, nb::arg("process_set"));
}

}  // namespace horo::python
