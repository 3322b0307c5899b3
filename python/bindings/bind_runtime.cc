#include <cmath>
#include <limits>
#include <optional>

#include "bindings.h"
#include "place.h"

#include "horo/api/fabric.h"

namespace nb = nanobind;

namespace horo::python {

namespace {

void start(Job* self, const std::vector<std::vector<int>>& sets, const Job* predecessor,
           const std::optional<Place>& place, const std::optional<int>& communicator, const std::vector<int>& members,
           const std::optional<std::tuple<std::string, int, int>>& generation) {
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
  options.predecessor = predecessor == nullptr ? nullptr : predecessor->runtime.get();
  std::optional<PlaceOptions> placed;
  horo_engine_options engine = HORO_ENGINE_OPTIONS_INIT;
  if (place) engine = placed.emplace(*place).get();
  if (generation) {
    engine.generation = std::get<0>(*generation).c_str();
    engine.rank = std::get<1>(*generation);
    engine.size = std::get<2>(*generation);
  }
  engine.communicator = communicator ? &*communicator : nullptr;
  engine.ranks = members.empty() ? nullptr : members.data();
  engine.rank_count = members.size();
  options.engine = &engine;
  const nb::gil_scoped_release release;
  new (self) Job(options);
}

void decline(const Job* predecessor, const Place& place) {
  const PlaceOptions placed(place);
  horo_runtime_options options = HORO_RUNTIME_OPTIONS_INIT;
  options.predecessor = predecessor == nullptr ? nullptr : predecessor->runtime.get();
  options.engine = &placed.get();
  const nb::gil_scoped_release release;
  check(horo_runtime_decline(&options));
}

void shutdown(Job& self) {
  {
    const nb::gil_scoped_release release;
    self.runtime.shutdown();
  }
  self.orphans->clear();
}

Pending join(Job& self, int set) { return {self.runtime.join(set), nb::object(), self.orphans}; }

/// A function of the runtime, as one of the job.
template <auto function>
constexpr auto of = [](Job& self) { return (self.runtime.*function)(); };

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

nb::dict operation_metrics(const Job& self, int kind, int set) {
  const horo_operation_metrics from = self.runtime.metrics(static_cast<horo_kind>(kind), set);
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

nb::dict set_metrics(const Job& self, int set) {
  const horo_set_metrics from = self.runtime.set_metrics(set);
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
  nb::class_<Job> job(module, "Runtime", "This process's place in a job.");
  job.def("__init__", &start, nb::arg("process_sets"), nb::arg("predecessor").none(), nb::arg("place") = nb::none(),
          nb::arg("communicator") = nb::none(), nb::arg("ranks") = std::vector<int>(),
          nb::arg("generation") = nb::none())
      .def("shutdown", &shutdown)
      .def_static("decline", &decline, nb::arg("predecessor").none(), nb::arg("place"),
                  "Tells the ranks that wait, or will, for this process at that place that it does not come.")
      .def(
          "publish", [](Job& self) { horo_runtime_publish(self.runtime.get()); },
          "From now on it is the one that graph operations of frameworks use, until its shutdown.")
      .def("rank", of<&Runtime::rank>)
      .def("size", of<&Runtime::size>)
      .def("local_rank", of<&Runtime::local_rank>)
      .def("local_size", of<&Runtime::local_size>)
      .def("cross_rank", of<&Runtime::cross_rank>)
      .def("cross_size", of<&Runtime::cross_size>)
      .def("is_homogeneous", of<&Runtime::is_homogeneous>)
      .def("mpi_enabled", [](const Job& self) { return horo_runtime_mpi_enabled(self.runtime.get()) == 1; })
      .def("mpi_threads", [](const Job& self) { return horo_runtime_mpi_threads(self.runtime.get()) == 1; })
      .def("epoch", of<&Runtime::epoch>)
      .def(
          "reform", [](Job& self, double timeout) { self.runtime.reform(timeout); }, nb::arg("timeout"), Unlocked())
      .def(
          "start_timeline",
          [](Job& self, const std::string& path, bool cycles) { self.runtime.start_timeline(path, cycles); },
          nb::arg("path"), nb::arg("mark_cycles"), Unlocked())
      .def("stop_timeline", of<&Runtime::stop_timeline>, Unlocked())
      .def("operation_metrics", &operation_metrics, nb::arg("kind"), nb::arg("process_set"))
      .def("set_metrics", &set_metrics, nb::arg("process_set"))
      .def("metrics_text", of<&Runtime::metrics_text>)
      .def("join", &join, nb::arg("process_set"))
      .def(
          "add_set", [](Job& self, const std::vector<int>& ranks) { return self.runtime.add_set(ranks); },
          nb::arg("ranks"), Unlocked())
      .def(
          "remove_set", [](Job& self, int set) { self.runtime.remove_set(set); }, nb::arg("process_set"), Unlocked())
      .def("set_numbers", of<&Runtime::set_numbers>)
      .def(
          "set_ranks", [](Job& self, int set) { return self.runtime.set_ranks(set); }, nb::arg("process_set"));
  module.def(
      "mpi_built", [] { return horo_mpi_built() == 1; }, "Whether the plugin for MPI is installed.");
  bind_submit(module, job);
  bind_reduction(module, job);
  bind_group(module, job);
}

}  // namespace horo::python
