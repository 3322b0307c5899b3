#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "arrivals.h"

namespace nb = nanobind;

namespace horo::python {

namespace {

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<Slot>(self)->traverse(visit, arg) : 0;
}

int clear(PyObject* self) {
  nb::inst_ptr<Slot>(self)->clear();
  return 0;
}

/// Not a method called `__call__`: torch calls it for every gradient, and this is the shorter way.
PyObject* call(PyObject* self, PyObject* /*arguments*/, PyObject* /*named*/) {
  try {
    Slot& slot = *nb::inst_ptr<Slot>(self);
    nb::inst_ptr<Arrivals>(slot.arrivals)->arrived(self, slot);
    Py_RETURN_NONE;
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

PyType_Slot kSlotFunctions[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                                {Py_tp_clear, reinterpret_cast<void*>(clear)},
                                {Py_tp_call, reinterpret_cast<void*>(call)},
                                {0, nullptr}};

}  // namespace

void bind_arrivals(nb::module_& module) {
  nb::class_<Parcel>(module, "Parcel", "Gradients that are handed in together.")
      .def(
          "__init__",
          [](Parcel* self, int size) {
            new (self) Parcel{size, size};
          },
          nb::arg("size"))
      .def_rw("missing", &Parcel::missing);
  nb::class_<Slot>(module, "Slot", nb::type_slots(kSlotFunctions), "A parameter, and the hook of its gradient.")
      .def(
          "__init__",
          [](Slot* self, nb::object param, nb::object arrivals, nb::object gradients, int passes) {
            new (self) Slot();
            self->param = std::move(param);
            self->arrivals = std::move(arrivals);
            self->gradients = std::move(gradients);
            self->left = passes;
          },
          nb::arg("param"), nb::arg("arrivals"), nb::arg("gradients"), nb::arg("passes"))
      .def_ro("param", &Slot::param)
      .def_rw("left", &Slot::left)
      .def_rw("sent", &Slot::sent)
      .def_prop_rw("parcel", &Slot::parcel, &Slot::set_parcel, nb::arg("parcel").none())
      .def_prop_rw("native", &Slot::native, &Slot::set_native, nb::arg("native").none())
      .def_prop_rw("view", &Slot::view, &Slot::set_view, nb::arg("view").none());
  nb::class_<Arrivals>(module, "Arrivals", "Which gradients of a step have come.")
      .def(nb::init<nb::object, nb::object, nb::object, uint64_t>(), nb::arg("world"), nb::arg("reader"),
           nb::arg("current_pass"), nb::arg("enough"))
      .def_rw("runtime", &Arrivals::runtime, nb::arg("runtime").none())
      .def_rw("era", &Arrivals::era, nb::arg("era").none())
      .def_rw("synchronized", &Arrivals::synchronized)
      .def_rw("sent", &Arrivals::sent)
      .def_rw("watched", &Arrivals::pass)
      .def_prop_ro("pending", &Arrivals::pending)
      .def("add", &Arrivals::add, nb::arg("slot"), nb::arg("bytes"))
      .def("take_pending", &Arrivals::take_pending)
      .def("reset", &Arrivals::reset, nb::arg("slots"), nb::arg("passes"))
      .def("move_in", &Arrivals::move_in, nb::arg("slots"))
      .def("hand_in", &Arrivals::hand_in, nb::arg("slots"), nb::arg("process_set"), nb::arg("together"),
           nb::arg("waits"));
}

}  // namespace horo::python
