// What can be seen of a process from outside.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace horo::test {

struct Use {
  double cpu_ms = 0;
  long switches = 0;
};

/// CPU time and voluntary switches of all threads of a process.
Use use_of(pid_t pid);

/// Every socket that a process listens at, as net::Address::parse() takes them.
std::vector<std::string> listening_at(pid_t pid);

/// Open descriptors of this process.
size_t open_descriptors();
/// Resident memory of this process, without what the allocator only keeps for later.
size_t resident_bytes();

}  // namespace horo::test
