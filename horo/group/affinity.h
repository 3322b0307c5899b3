// Which core a rank's threads stay on.
#pragma once

#include <cstddef>
#include <string_view>

#include "horo/base/status.h"

namespace horo::group {

/// From HORO_THREAD_AFFINITY: "3" for all ranks of a host, or "0,2,4", a core for each of them in order. -1 when it is
/// empty. kInvalidArgument for what is no list of cores, and for a list that is too short.
Result<int> core_for(std::string_view list, size_t local_rank, size_t local_size);

}  // namespace horo::group
