// What can be seen of a process from outside.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace horo::test {

struct Use {
  double cpu_ms = 0;
  long switches = 0;
};

/// CPU time and voluntary switches of all threads of a process, or of those that are called `thread`.
Use use_of(pid_t pid, std::string_view thread = {});

/// Every socket that a process listens at, as net::Address::parse() takes them.
std::vector<std::string> listening_at(pid_t pid);

/// Open descriptors of this process.
size_t open_descriptors();
/// What this process has allocated and not freed. Says nothing of what the allocator keeps for later, so that a leak of
/// a few bytes shows after some turns.
size_t heap_bytes();
/// Mappings of this process that have no file: threads' stacks, shared segments, pages of keys.
size_t mappings();

}  // namespace horo::test
