// Settings of `horo run` from a YAML file (--config-file), with the sections that Horovod's has.
#pragma once

#include <string_view>

#include "cli/run/flags.h"

namespace horo::cli::launch {

/// Adds what the file says and no flag does. kInvalidArgument with "path:line: ..." for what is no YAML, for unknown
/// settings (and the nearest known one) and for values of the wrong kind.
Status add_settings(std::string_view contents, std::string_view path, FlagValues& flags);

}  // namespace horo::cli::launch
