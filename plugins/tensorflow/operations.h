// The operations that graphs have.
#pragma once

#include "plugins/tensorflow/api.h"

namespace horo::tensorflow {

/// Registers all operations and their kernels. `api` must live for ever.
Status register_all(const Api& api);

}  // namespace horo::tensorflow
