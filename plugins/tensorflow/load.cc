// What happens when TensorFlow loads this library: tf.load_op_library() takes the operations that are registered
// meanwhile.
#include <string>

#include "plugins/tensorflow/operations.h"

namespace {

struct Loaded {
  horo::tensorflow::Api api{};
  std::string problem;
};

/// Never destroyed: kernels may still run while the process exits.
Loaded& loaded() {
  static Loaded* const kOnly = new Loaded;
  return *kOnly;
}

[[gnu::constructor]] void load() {
  auto api = horo::tensorflow::find_api();
  horo::Status status = api.status();
  if (api.ok()) {
    loaded().api = *api;
    status = horo::tensorflow::register_all(loaded().api);
  }
  if (!status.ok()) loaded().problem = status.to_string();
}

}  // namespace

/// Why no operations were registered; empty: they were.
extern "C" [[gnu::visibility("default")]] const char* horo_tensorflow_problem() { return loaded().problem.c_str(); }
/// Whether kernels wait on threads of the library, and not on TensorFlow's.
extern "C" [[gnu::visibility("default")]] int horo_tensorflow_asynchronous() {
  return loaded().api.new_async_kernel_builder != nullptr ? 1 : 0;
}
