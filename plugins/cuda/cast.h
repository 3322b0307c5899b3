// Elements of another type, in a stream of the application's.
#pragma once

#include <span>

#include "plugins/cuda/context.h"

#include "horo/device/plugin.h"

namespace horo::cuda {

/// Put into the stream when this returns. The context must be current.
Status cast_arrays(Context& context, CUstream stream, const horo_device_cast_terms& terms,
                   std::span<const horo_device_cast> arrays);

}  // namespace horo::cuda
