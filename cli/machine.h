// What machine this is, for the first line of every report.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace horo::cli {

struct Machine {
  std::string model;         ///< "Neoverse-V1", "Intel(R) Xeon(R) Processor"
  std::string architecture;  ///< "x86_64"
  int usable_cores = 0;
  std::string kernel;               ///< "Linux 6.1.0"
  std::vector<std::string> caches;  ///< "L1d 48K", "L2 2048K", "L3 307200K"
  uint64_t memory = 0;              ///< Bytes that this process may use.

  std::string to_string() const;
};

Machine this_machine();

}  // namespace horo::cli
