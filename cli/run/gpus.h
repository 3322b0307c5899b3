// Which GPUs each rank of a host sees. Pure, but for count_gpus().
#pragma once

#include <optional>
#include <string>

#include "horo/base/status.h"

namespace horo::cli::launch {

struct GpuTerms {
  int each = 0;              ///< GPUs of a rank.
  bool share = false;        ///< Ranks may get a GPU that another has.
  std::string visible = {};  ///< What the user lets this host's ranks see ("4,5", uuids); empty: all.
  int present = 0;           ///< GPUs of the host; 0: unknown.
};

/// The value of CUDA_VISIBLE_DEVICES for one of the `ranks` of a host. kInvalidArgument when there are too few.
Result<std::string> gpus_of(const GpuTerms& terms, int local_rank, int ranks);

/// Of this host, as the driver lists them; 0 where it lists none.
int count_gpus();

}  // namespace horo::cli::launch
