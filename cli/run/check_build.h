// `horo run --check-build`: what this installation offers, in the form that Horovod's users know.
#pragma once

#include <string>

namespace horo::cli::launch {

/// Asks the python3 of the PATH, if there is one, which frameworks it could import.
std::string check_build_text();

}  // namespace horo::cli::launch
