// Which frameworks a Python has, by the metadata of what is installed. Nothing is imported.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "horo/base/config.h"
#include "horo/base/status.h"

namespace horo::cli {

/// The Python beside this program, else the first in the PATH; empty when there is none.
std::string find_python(const Environment& environment, const std::string& beside);

/// Version by name, of those of framework_names() that are there. kUnavailable when the interpreter does not answer.
Result<std::map<std::string, std::string>> frameworks_of(const std::string& python);

/// "horo", "torch", "tensorflow", ...
const std::vector<std::string>& framework_names();

}  // namespace horo::cli
