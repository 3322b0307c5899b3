#include "horo/base/system.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <cmath>
#include <fstream>
#include <sstream>
#include <thread>

#include "horo/base/cgroup.h"
#include "horo/base/text.h"

namespace horo {

namespace {

namespace fs = std::filesystem;

int affinity_cores() {
  // The mask has to be at least as large as the kernel's; machines with more than 1024 CPUs need a larger one.
  for (int capacity = 1024; capacity <= (1 << 18); capacity *= 4) {
    cpu_set_t* mask = CPU_ALLOC(capacity);
    if (mask == nullptr) break;
    size_t bytes = CPU_ALLOC_SIZE(capacity);
    int count = sched_getaffinity(0, bytes, mask) == 0 ? CPU_COUNT_S(bytes, mask) : 0;
    CPU_FREE(mask);
    if (count > 0) return count;
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::optional<double> quota_at(const fs::path& level, CgroupVersion version) {
  double quota = 0;
  double period = 0;
  if (version == CgroupVersion::kV2) {
    std::istringstream in(read_small_file(level / "cpu.max").value_or(""));
    if (!(in >> quota >> period)) return std::nullopt;  // "max 100000" means no limit.
  } else {
    quota = static_cast<double>(read_number(level / "cpu.cfs_quota_us").value_or(-1));
    period = static_cast<double>(read_number(level / "cpu.cfs_period_us").value_or(0));
  }
  if (quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

// The value behind `key` in a file of "key value" lines; "key:   123 kB" counts in KiB.
std::optional<uint64_t> keyed_number(const fs::path& path, std::string_view key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    std::istringstream rest(line.substr(key.size()));
    uint64_t value = 0;
    std::string unit;
    if (!(rest >> value)) continue;
    return rest >> unit && unit == "kB" ? value * 1024 : value;
  }
  return std::nullopt;
}

// Drops of page cache do not count: the kernel takes inactive file pages back before it refuses memory.
std::optional<System::Memory> memory_at(const fs::path& level, CgroupVersion version) {
  bool v2 = version == CgroupVersion::kV2;
  auto limit = read_number(level / (v2 ? "memory.max" : "memory.limit_in_bytes"));
  auto used = read_number(level / (v2 ? "memory.current" : "memory.usage_in_bytes"));
  if (!limit || !used || *limit < 0 || *used < 0) return std::nullopt;
  auto cache = keyed_number(level / "memory.stat", v2 ? "inactive_file " : "total_inactive_file ").value_or(0);
  auto bytes = static_cast<uint64_t>(*used);
  return System::Memory{static_cast<uint64_t>(*limit), bytes - std::min(bytes, cache)};
}

}  // namespace

std::optional<double> System::cpu_quota() const {
  auto cgroup = find_cgroup(root_, "cpu");
  if (!cgroup) return std::nullopt;
  std::optional<double> least;
  for (const fs::path& level : cgroup->levels) {
    auto quota = quota_at(level, cgroup->version);
    if (quota && (!least || *quota < *least)) least = quota;
  }
  return least;
}

int System::usable_cores() const {
  int cores = affinity_cores();
  auto quota = cpu_quota();
  // A quota of 1.5 lets two threads run at once most of the time.
  if (quota && *quota < cores) cores = static_cast<int>(std::ceil(*quota));
  return std::max(1, cores);
}

Result<System::Memory> System::memory() const {
  std::optional<Memory> tightest;
  auto consider = [&](std::optional<Memory> level) {
    if (level && (!tightest || level->available() < tightest->available())) tightest = level;
  };
  fs::path meminfo = root_ / "proc/meminfo";
  auto total = keyed_number(meminfo, "MemTotal:");
  auto available = keyed_number(meminfo, "MemAvailable:");
  if (total && available) consider(Memory{*total, *total - std::min(*total, *available)});
  if (auto cgroup = find_cgroup(root_, "memory")) {
    for (const fs::path& level : cgroup->levels) consider(memory_at(level, cgroup->version));
  }
  if (!tightest) {
    return Status(Code::kNotFound, text("neither ", meminfo.string(),
                                        " nor a memory cgroup tells how much memory is "
                                        "left; is /proc mounted?"));
  }
  return *tightest;
}

Result<std::string> System::boot_id() const {
  fs::path path = root_ / "proc/sys/kernel/random/boot_id";
  auto id = read_small_file(path);
  if (!id || id->empty()) {
    return Status(Code::kNotFound, text(path.string(), " cannot be read; set HORO_HOST_ID to name this host"));
  }
  return *std::move(id);
}

std::string System::time_namespace() const {
  std::error_code error;
  return fs::read_symlink(root_ / "proc/self/ns/time", error).string();  // "time:[4026531834]"
}

Result<uint64_t> System::network_namespace() const {
  fs::path path = root_ / "proc/self/ns/net";
  std::error_code error;
  std::string link = fs::read_symlink(path, error).string();  // "net:[4026531840]"
  uint64_t inode = 0;
  size_t bracket = link.find('[');
  if (!error && bracket != std::string::npos) {
    std::from_chars(link.data() + bracket + 1, link.data() + link.size(), inode);
  }
  if (inode == 0) {
    return Status(Code::kNotFound, text(path.string(), " does not name a network namespace",
                                        error ? text(" (", error.message(), ")") : text(" but '", link, "'"),
                                        "; set HORO_HOST_ID to name this host"));
  }
  return inode;
}

size_t page_size() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> buffer{};
  return gethostname(buffer.data(), buffer.size() - 1) == 0 ? buffer.data() : "unknown";
}

}  // namespace horo
