// Failures become what horo.exceptions makes of them.
#include <nanobind/stl/vector.h>

#include "bindings.h"

namespace nb = nanobind;

namespace horo::python {

void bind_error(nb::module_&) {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      nb::object made = nb::module_::import_("horo.exceptions")
                            .attr("exception_of")(horo_code_name(error.code()), error.what(), error.lost());
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
    }
  });
}

}  // namespace horo::python
