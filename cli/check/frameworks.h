// Which frameworks a Python has, by the metadata of what is installed, and which plugins of horo. Nothing is imported.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "horo/base/config.h"
#include "horo/base/status.h"

namespace horo::cli {

/// The Python beside this program, else the first in the PATH; empty when there is none.
std::string find_python(const Environment& environment, const std::string& beside);

/// Version by name, of those of framework_names() that are there; and what is to be said of horo's own plugins, under
/// kPluginPrefix and their names. kUnavailable when the interpreter does not answer.
inline constexpr std::string_view kPluginPrefix = "plugin:";
Result<std::map<std::string, std::string>> frameworks_of(const std::string& python);

/// "horo", "torch", "tensorflow", ...
const std::vector<std::string>& framework_names();

}  // namespace horo::cli
