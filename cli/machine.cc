#include "cli/machine.h"

#include <sys/utsname.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "horo/base/cgroup.h"
#include "horo/base/system.h"
#include "horo/base/text.h"

namespace horo::cli {

namespace {

/// The value of the first line of /proc/cpuinfo that begins with one of `names`.
std::string cpuinfo(const std::set<std::string>& names) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || colon + 2 > line.size()) continue;
    const std::string key = line.substr(0, line.find_first_of("\t:"));
    if (names.count(key) != 0) return line.substr(colon + 2);
  }
  return {};
}

std::string model() {
  std::string name = cpuinfo({"model name"});
  if (!name.empty()) return name;
  // Arm kernels tell numbers instead of names; these are the parts of the servers one meets.
  const std::string part = cpuinfo({"CPU part"});
  if (part == "0xd0c") return "Neoverse-N1";
  if (part == "0xd40") return "Neoverse-V1";
  if (part == "0xd49") return "Neoverse-N2";
  if (part == "0xd4f") return "Neoverse-V2";
  return part.empty() ? "unknown processor" : text("CPU part ", part, " of implementer ", cpuinfo({"CPU implementer"}));
}

std::vector<std::string> caches() {
  std::vector<std::string> list;
  for (int index = 0; index < 8; ++index) {
    const std::filesystem::path folder = text("/sys/devices/system/cpu/cpu0/cache/index", index);
    const auto level = read_small_file(folder / "level");
    const auto type = read_small_file(folder / "type");
    const auto size = read_small_file(folder / "size");
    if (!level || !type || !size || *type == "Instruction") continue;
    list.push_back(text("L", *level, *type == "Data" ? "d " : " ", *size));
  }
  return list;
}

}  // namespace

Machine this_machine() {
  utsname names{};
  uname(&names);
  const System system;
  const auto memory = system.memory();
  return {.model = model(),
          .architecture = names.machine,
          .usable_cores = system.usable_cores(),
          .kernel = text(names.sysname, " ", names.release),
          .caches = caches(),
          .memory = memory.ok() ? memory->limit : 0};
}

std::string Machine::to_string() const {
  std::string line = text(model, " (", architecture, "), ", usable_cores, usable_cores == 1 ? " core" : " cores");
  for (const std::string& cache : caches) line += ", " + cache;
  return line + text(", ", bytes_text(memory), " memory, ", kernel);
}

}  // namespace horo::cli
