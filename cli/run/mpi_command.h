// `horo run --mpi`: the command line of the MPI launcher that starts the ranks instead of horo.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/run/options.h"

namespace horo::cli::launch {

enum class MpiFamily : uint8_t { kOpenMpi, kMpich };

/// By what `mpirun --version` prints. kNotFound for what is neither.
Result<MpiFamily> mpi_family(std::string_view version);

/// What is known about this host.
struct MpiHost {
  bool is_root = false;
  int cores = 1;
};

/// Pure. `forwarded`: names of variables that ranks on other hosts get too.
std::vector<std::string> mpi_command(MpiFamily family, const RunOptions& options, const MpiHost& host,
                                     const std::vector<std::string>& forwarded);

/// Becomes mpirun; returns only with what went wrong.
Status run_through_mpi(const RunOptions& options, const Environment& environment);

}  // namespace horo::cli::launch
