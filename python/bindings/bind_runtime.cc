#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <limits>

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

/// What is refused after the first is an outcome of the batch: the tensors before it are under way.
Batch submit_each(Runtime& self, const std::vector<const Tensor*>& tensors, int set) {
  Batch batch;
  batch.handles.reserve(tensors.size());
  for (const Tensor* tensor : tensors) {
    try {
      batch.handles.push_back(self.submit({tensor->view()}, set));
    } catch (const Error&) {
      if (batch.handles.empty()) throw;
      batch.refused = std::current_exception();
      break;
    }
  }
  return batch;
}

/// Bytes that own the memory.
nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>> allocate(Runtime& self, size_t bytes) {
  auto memory = self.allocate<uint8_t>(bytes);
  uint8_t* address = memory.get();
  auto owner = std::make_unique<decltype(memory)>(std::move(memory));
  nb::capsule capsule(owner.get(), [](void* one) noexcept { delete static_cast<decltype(owner.get())>(one); });
  owner.release();
  return nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(address, {bytes}, capsule);
}

nb::dict times_of(const horo_times& times) {
  nb::dict all, buckets;
  uint64_t so_far = 0;
  for (int i = 0; i < HORO_BUCKETS; ++i) {
    so_far += times.buckets[i];
    const bool last = i == HORO_BUCKETS - 1;
    buckets[nb::float_(last ? std::numeric_limits<double>::infinity() : std::ldexp(1e-6, i))] = so_far;
  }
  all["count"] = times.count;
  all["sum"] = times.sum;
  all["buckets"] = buckets;
  return all;
}

nb::dict operation_metrics(const Runtime& self, int kind, int set) {
  const horo_operation_metrics from = self.metrics(static_cast<horo_kind>(kind), set);
  nb::dict all;
  all["handed_in"] = from.handed_in;
  all["tensors"] = from.tensors;
  all["errors"] = from.errors;
  all["bytes"] = from.bytes;
  all["batches"] = from.batches;
  all["latency_seconds"] = times_of(from.latency);
  all["wait_seconds"] = times_of(from.wait);
  return all;
}

nb::dict set_metrics(const Runtime& self, int set) {
  const horo_set_metrics from = self.set_metrics(set);
  nb::dict all;
  all["announced_by_number"] = from.announced_by_number;
  all["announced_in_full"] = from.announced_in_full;
  all["messages_sent"] = from.messages_sent;
  all["messages_received"] = from.messages_received;
  all["stalls"] = from.stalls;
  return all;
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
      .def("start_timeline", &Runtime::start_timeline, nb::arg("path"), nb::arg("mark_cycles"), Unlocked())
      .def("stop_timeline", &Runtime::stop_timeline, Unlocked())
      .def("operation_metrics", &operation_metrics, nb::arg("kind"), nb::arg("process_set"))
      .def("set_metrics", &set_metrics, nb::arg("process_set"))
      .def("metrics_text", &Runtime::metrics_text)
      .def("submit", &submit, nb::arg("tensors"), nb::arg("process_set"))
      .def("submit_each", &submit_each, nb::arg("tensors"), nb::arg("process_set"))
      .def("allocate", &allocate, nb::arg("bytes"))
      .def("join", &Runtime::join, nb::arg("process_set"))
      .def("add_set", &Runtime::add_set, nb::arg("ranks"), Unlocked())
      .def("remove_set", &Runtime::remove_set, nb::arg("process_set"), Unlocked())
      .def("set_numbers", &Runtime::set_numbers)
      .def("set_ranks", &Runtime::set_ranks, nb::arg("process_set"));
}

}  // namespace horo::python
