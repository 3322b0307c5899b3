// What the machine and its container allow: cores, memory, identity. Read from /proc, /sys and the affinity mask.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "horo/base/status.h"

namespace horo {

/// The files of a system. Tests hand in a folder of their own in place of "/".
class System {
 public:
  explicit System(std::filesystem::path root = "/") : root_(std::move(root)) {}

  /// How many threads can run at once: the affinity mask, or less when cpu.max (cgroup v2) or cpu.cfs_quota_us (v1)
  /// of this process's cgroup or of one above it says so. At least 1.
  int usable_cores() const;
  /// CPU time per wall-clock time that the cgroups allow ("1.5 cores"); nothing when they do not limit.
  std::optional<double> cpu_quota() const;

  struct Memory {
    uint64_t limit = 0;  ///< Of the tightest level: the machine's memory, or a limit of this cgroup or one above it.
    uint64_t used = 0;   ///< At that level, file pages that can be dropped at once not counted.
    uint64_t available() const { return used < limit ? limit - used : 0; }
  };
  /// The level with the least memory left. kNotFound when not even /proc/meminfo can be read.
  Result<Memory> memory() const;

  /// The random number that names one boot of the machine. Equal in all containers of a machine.
  Result<std::string> boot_id() const;
  /// The inode that names this process's network namespace.
  Result<uint64_t> network_namespace() const;
  /// Names what this process's monotonic clock counts from; empty where the kernel has no such namespaces.
  std::string time_namespace() const;

 private:
  std::filesystem::path root_;
};

size_t page_size();
std::string host_name();

}  // namespace horo
