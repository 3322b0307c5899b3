// What a handler is asked to do, read from its call frame.
#pragma once

#include <string>
#include <vector>

#include "plugins/jax/ffi.h"

#include "horo/api/horo.h"
#include "horo/base/status.h"

namespace horo::jax {

/// A grouped allreduce. Its tensors point into the call frame and into `names`.
struct Call {
  int set = 0;
  std::vector<std::string> names;
  std::vector<horo_tensor> tensors;
};

/// kInvalidArgument names what is wrong with the frame.
Result<Call> read_call(const ffi::CallFrame& frame);

}  // namespace horo::jax
