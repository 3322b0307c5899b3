// The extension module horo._horo. Bindings hold no logic; one bind_<noun>.cc per noun joins in here.
#include "bindings.h"

#include "horo/base/build.h"

namespace nb = nanobind;

namespace {

nb::str as_str(std::string_view text) { return nb::str(text.data(), text.size()); }

nb::dict build_info() {
  const horo::BuildInfo& info = horo::build_info();
  nb::dict out;
  out["version"] = as_str(info.version);
  out["compiler"] = as_str(info.compiler);
  out["architecture"] = as_str(info.architecture);
  out["build_type"] = as_str(info.build_type);
  out["sanitizers"] = as_str(info.sanitizers);
  return out;
}

}  // namespace

NB_MODULE(_horo, module) {
  module.doc() = "The compiled part of horo.";
  // Arrays and handles may outlive the interpreter's last look at this module, in a user's globals.
  nb::set_leak_warnings(false);
  horo::python::bind_error(module);
  horo::python::bind_handle(module);
  horo::python::bind_runtime(module);
  horo::python::bind_engine(module);
  horo::python::bind_device(module);
  horo::python::bind_tensor_reader(module);
  horo::python::bind_arrivals(module);
  horo::python::bind_door(module);
  horo::python::bind_reducer(module);
  module.def("build_info", &build_info, "What this build of horo was made with.");
}
