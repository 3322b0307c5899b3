#include "cli/check/frameworks.h"

#include <unistd.h>

#include <sstream>

#include "cli/run/capture.h"
#include "cli/run/spawn.h"

#include "horo/base/text.h"

namespace horo::cli {

namespace {

constexpr Duration kPatience = std::chrono::seconds(10);

/// Some come under several names: builds for one kind of device, nightly ones. Prints "name version" lines. Plugins lie
/// in the folder of the package; that for MPI is asked which library it would take.
constexpr std::string_view kScript = R"(
import ctypes
import glob
import importlib.metadata as metadata
import importlib.util
import os
import re
import sys
others = {'tensorflow': ['tensorflow-cpu', 'tensorflow-gpu', 'tensorflow-rocm', 'tf-nightly'], 'keras': ['keras-nightly']}
for name in sys.argv[1:]:
    for candidate in [name] + others.get(name, []):
        try:
            print(name, metadata.version(candidate) or 'unknown')
            break
        except Exception:
            pass
package = importlib.util.find_spec('horo')
for folder in (package.submodule_search_locations or []) if package else []:
    for file in sorted(glob.glob(os.path.join(glob.escape(folder), 'libhoro_*.so'))):
        name = re.search('libhoro_([a-z]+)', file)[1]
        said = 'here'
        if name == 'mpi':
            try:
                describe = ctypes.CDLL(file).horo_fabric_describe
                describe.restype = ctypes.c_char_p
                said = describe().decode()
            except Exception as error:
                said = 'cannot be loaded: ' + str(error).replace('\n', ' ')
        print('plugin:' + name, said)
print('end', 'here')
)";

}  // namespace

const std::vector<std::string>& framework_names() {
  static const std::vector<std::string> names{"horo", "numpy", "torch",   "tensorflow", "keras",
                                              "jax",  "ray",   "pyspark", "mpi4py",     "cloudpickle"};
  return names;
}

std::string find_python(const Environment& environment, const std::string& beside) {
  for (const char* name : {"python3", "python"}) {
    std::string own = text(beside, "/", name);
    if (access(own.c_str(), X_OK) == 0) return own;
  }
  for (const char* name : {"python3", "python"}) {
    auto found = launch::find_program(name, environment.find("PATH").value_or(""));
    if (found.ok()) return *found;
  }
  return "";
}

Result<std::map<std::string, std::string>> frameworks_of(const std::string& python) {
  std::vector<std::string> words{python, "-c", std::string(kScript)};
  words.insert(words.end(), framework_names().begin(), framework_names().end());
  HORO_ASSIGN(const std::string said, launch::capture(words, Deadline::after(kPatience)));
  std::map<std::string, std::string> found;
  std::istringstream lines(said);
  for (std::string name, version; lines >> name && std::getline(lines >> std::ws, version);) found[name] = version;
  if (found.erase("end") == 0) return Status(Code::kUnavailable, text(python, " did not say what it has"));
  return found;
}

}  // namespace horo::cli
