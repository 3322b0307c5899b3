#include "backward_pass.h"

#include <dlfcn.h>

#include <utility>

namespace nb = nanobind;

namespace horo::python {

namespace {

/// int torch::autograd::get_current_graph_task_id(), if torch is in this process and has it.
void* find_function() {
  void* library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  void* found = dlsym(library, "_ZN5torch8autograd25get_current_graph_task_idEv");
  dlclose(library);  // Python never unloads it.
  return found;
}

}  // namespace

BackwardPass::BackwardPass(nb::object ask)
    : ask_(std::move(ask)), function_(reinterpret_cast<Function>(find_function())) {}

int64_t BackwardPass::number() {
  if (believed_) return function_();
  const auto said = nb::cast<int64_t>(ask_());
  if (function_ != nullptr && said >= 0) {
    believed_ = function_() == said;
    if (!believed_) function_ = nullptr;
  }
  return said;
}

}  // namespace horo::python
