#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "model_reducer.h"

namespace nb = nanobind;

namespace horo::python {

namespace {

/// A parameter's hook. What torch holds of a parameter its garbage collector does not see, so a hook that held the
/// reducer, and with it the model, would keep all of it for ever.
struct GradientHook {
  nb::object reducer;  ///< A weak reference.
  size_t index = 0;
};

int visit_reducer(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<ModelReducer>(self)->traverse(visit, arg) : 0;
}

int clear_reducer(PyObject* self) {
  nb::inst_ptr<ModelReducer>(self)->clear();
  return 0;
}

/// Translates as bound functions do.
void restore(const Error& error) {
  try {
    const nb::object made = nb::module_::import_("horo.exceptions")
                                .attr("exception_of")(horo_code_name(error.code()), error.what(), error.lost());
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
  } catch (nb::python_error& other) {
    other.restore();
  }
}

/// Not a method called `__call__`: torch calls it for every gradient, and this is the shorter way.
PyObject* call_hook(PyObject* self, PyObject* arguments, PyObject* /*named*/) {
  PyObject* param = PyTuple_GetItem(arguments, 0);
  if (param == nullptr) return nullptr;
  const GradientHook& hook = *nb::inst_ptr<GradientHook>(self);
  const nb::object reducer = nb::borrow(PyWeakref_GetObject(hook.reducer.ptr()));
  if (reducer.is_none()) Py_RETURN_NONE;
  try {
    nb::inst_ptr<ModelReducer>(reducer)->arrived(hook.index, param);
    Py_RETURN_NONE;
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const Error& error) {
    restore(error);
  } catch (const nb::builtin_exception& error) {
    PyErr_SetString(PyExc_TypeError, error.what());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

PyType_Slot kHookSlots[] = {{Py_tp_call, reinterpret_cast<void*>(call_hook)}, {0, nullptr}};
PyType_Slot kReducerSlots[] = {{Py_tp_traverse, reinterpret_cast<void*>(visit_reducer)},
                               {Py_tp_clear, reinterpret_cast<void*>(clear_reducer)},
                               {0, nullptr}};

std::vector<ParameterForm> forms_of(const nb::sequence& parameters) {
  std::vector<ParameterForm> forms;
  for (nb::handle object : parameters) {
    const auto one = nb::borrow<nb::tuple>(object);
    if (nb::len(one) != 6) throw nb::value_error("a parameter is (name, dtype, shape, strides, device, is sparse)");
    ParameterForm form{nb::cast<std::string>(one[0]), nb::cast<int>(one[1]), nb::cast<std::vector<int64_t>>(one[2]), {},
                       nb::cast<int>(one[4]),         nb::cast<bool>(one[5])};
    if (!one[3].is_none()) form.strides = nb::cast<std::vector<int64_t>>(one[3]);
    if (!form.strides.empty() && form.strides.size() != form.shape.size()) {
      throw nb::value_error("one stride for each dimension");
    }
    forms.push_back(std::move(form));
  }
  return forms;
}

void make(ModelReducer* self, nb::object group, nb::object reader, const nb::sequence& parameters,
          const std::vector<uint64_t>& first_limits, const std::vector<uint64_t>& rebuilt_limits, bool find_unused,
          bool static_graph, bool views, bool skip_unused, bool small_bucket_last) {
  horo_reducer_options options = HORO_REDUCER_OPTIONS_INIT;
  options.first_limits = first_limits.data();
  options.first_limit_count = first_limits.size();
  options.rebuilt_limits = rebuilt_limits.data();
  options.rebuilt_limit_count = rebuilt_limits.size();
  options.find_unused = find_unused ? 1 : 0;
  options.static_graph = static_graph ? 1 : 0;
  options.views = views ? 1 : 0;
  options.skip_unused = skip_unused ? 1 : 0;
  options.small_bucket_last = small_bucket_last ? 1 : 0;
  new (self) ModelReducer(std::move(group), std::move(reader), forms_of(parameters), options);
}

std::vector<std::vector<size_t>> buckets(const ModelReducer& self) {
  std::vector<std::vector<size_t>> all;
  for (size_t i = 0; i < self.reducer().buckets(); ++i) {
    const horo_bucket bucket = self.reducer().bucket(i);
    all.emplace_back(bucket.parameters, bucket.parameters + bucket.parameter_count);
  }
  return all;
}

/// Bytes that keep a bucket's memory, and the engine that it is of.
nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>> memory(const ModelReducer& self, size_t bucket) {
  struct Kept {
    nb::object group;
    std::shared_ptr<void> memory;
  };
  auto kept = std::make_unique<Kept>(Kept{self.group(), self.reducer().memory(bucket)});
  void* address = kept->memory.get();
  nb::capsule owner(kept.get(), [](void* one) noexcept { delete static_cast<Kept*>(one); });
  (void)kept.release();
  return {address, {self.reducer().bucket(bucket).bytes}, owner};
}

void set_hook(ModelReducer& self, const std::string& kind, int rank, uint64_t start_iteration,
              double min_compression_rate, bool error_feedback, bool warm_start, uint64_t seed) {
  constexpr const char* kNames[] = {"allreduce", "fp16", "bf16", "int8", "powersgd", "caller"};
  horo_hook_options options = HORO_HOOK_OPTIONS_INIT;
  int number = -1;
  for (int i = 0; i <= HORO_HOOK_CALLER; ++i) number = kind == kNames[i] ? i : number;
  if (number < 0) throw nb::value_error(("there is no hook \"" + kind + "\"").c_str());
  options.kind = static_cast<horo_hook_kind>(number);
  options.rank = rank;
  options.start_iteration = start_iteration;
  options.min_compression_rate = min_compression_rate;
  options.error_feedback = error_feedback ? 1 : 0;
  options.warm_start = warm_start ? 1 : 0;
  options.seed = seed;
  self.reducer().set_hook(options);
}

nb::dict statistics(const ModelReducer& self) {
  const horo_reduction_statistics from = self.reducer().statistics();
  nb::dict all, last;
  all["iterations"] = from.iterations;
  all["failures"] = from.failures;
  all["buckets_reduced"] = from.buckets_reduced;
  all["buckets_skipped"] = from.buckets_skipped;
  all["gradient_bytes"] = from.gradient_bytes;
  all["sent_bytes"] = from.sent_bytes;
  all["unused_bytes"] = from.unused_bytes;
  all["rebuilt"] = from.rebuilt == 1;
  all["samples"] = from.samples;
  last["forward_start"] = from.last.forward_start;
  last["backward_start"] = from.last.backward_start;
  last["communication_start"] = from.last.communication_start;
  last["backward_end"] = from.last.backward_end;
  last["communication_end"] = from.last.communication_end;
  all["last"] = last;
  all["mean_forward"] = from.mean_forward;
  all["mean_backward"] = from.mean_backward;
  all["mean_communication"] = from.mean_communication;
  all["mean_overlap"] = from.mean_overlap;
  return all;
}

nb::dict outcomes() {
  nb::dict all;
  all["reduced"] = static_cast<int>(HORO_REDUCED);
  all["untouched"] = static_cast<int>(HORO_UNTOUCHED);
  all["without_place"] = static_cast<int>(HORO_WITHOUT_PLACE);
  all["by_caller"] = static_cast<int>(HORO_BY_CALLER);
  return all;
}

void bind_iteration(nb::class_<ModelReducer>& reducer) {
  reducer.def("prepare_forward", &ModelReducer::prepare_forward)
      .def("prepare_backward", &ModelReducer::prepare_backward, nb::arg("synchronize"), nb::arg("unused"))
      .def("ready", &ModelReducer::ready, nb::arg("parameter"), nb::arg("address"))
      .def("ready_all", &ModelReducer::ready_all)
      .def("end_backward", &ModelReducer::end_backward)
      .def("deliver", &ModelReducer::deliver, nb::arg("bucket"), nb::arg("address"))
      .def("all_launched", [](const ModelReducer& self) { return self.reducer().all_launched(); })
      .def("under_way", [](const ModelReducer& self) { return self.reducer().under_way(); })
      .def("fail", &ModelReducer::fail, nb::arg("why"), nb::kw_only(), nb::arg("follows") = false)
      .def("finish", &ModelReducer::finish);
}

}  // namespace

void bind_reducer(nb::module_& module) {
  nb::class_<GradientHook>(module, "GradientHook", nb::type_slots(kHookSlots), "What a reducer knows a gradient by.");
  nb::class_<ModelReducer> reducer(module, "Reducer", nb::type_slots(kReducerSlots), nb::is_weak_referenceable(),
                                   "Reduces the gradients of a model in buckets, while the backward pass runs.");
  reducer
      .def("__init__", &make, nb::arg("group"), nb::arg("reader"), nb::arg("parameters"), nb::kw_only(),
           nb::arg("first_limits"), nb::arg("rebuilt_limits"), nb::arg("find_unused") = false,
           nb::arg("static_graph") = false, nb::arg("views") = false, nb::arg("skip_unused") = false,
           nb::arg("small_bucket_last") = false)
      .def("buckets", &buckets)
      .def("memory", &memory, nb::arg("bucket"))
      .def(
          "slot",
          [](const ModelReducer& self, size_t parameter) {
            const Reducer::Slot slot = self.reducer().slot(parameter);
            return std::make_pair(slot.bucket, slot.offset);
          },
          nb::arg("parameter"))
      .def("set_views", &ModelReducer::set_views, nb::arg("views").none())
      .def(
          "hook",
          [](const nb::object& self, size_t parameter) {
            if (parameter >= nb::cast<ModelReducer&>(self).count()) throw nb::index_error("there is no such parameter");
            return GradientHook{nb::steal(PyWeakref_NewRef(self.ptr(), nullptr)), parameter};
          },
          nb::arg("parameter"))
      .def(
          "on_bucket", [](ModelReducer& self, nb::object callback) { self.on_bucket = std::move(callback); },
          nb::arg("callback").none())
      .def(
          "on_launched", [](ModelReducer& self, nb::object callback) { self.on_launched = std::move(callback); },
          nb::arg("callback").none())
      .def(
          "on_odd", [](ModelReducer& self, nb::object callback) { self.on_odd = std::move(callback); },
          nb::arg("callback").none())
      .def("set_hook", &set_hook, nb::arg("kind"), nb::kw_only(), nb::arg("rank") = 1,
           nb::arg("start_iteration") = 1000, nb::arg("min_compression_rate") = 2.0, nb::arg("error_feedback") = true,
           nb::arg("warm_start") = true, nb::arg("seed") = 0)
      .def(
          "set_divisor", [](ModelReducer& self, double divisor) { self.reducer().set_divisor(divisor); },
          nb::arg("divisor"))
      .def(
          "set_sample_rate", [](ModelReducer& self, uint64_t rate) { self.reducer().set_sample_rate(rate); },
          nb::arg("iterations"))
      .def("set_static_graph", [](ModelReducer& self) { self.reducer().set_static_graph(); })
      .def("statistics", &statistics)
      .def("ready_order", [](const ModelReducer& self) { return self.reducer().ready_order(); });
  bind_iteration(reducer);
  module.attr("OUTCOMES") = outcomes();
}

}  // namespace horo::python
