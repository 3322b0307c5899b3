// What this machine offers to horo.
#pragma once

#include <string>
#include <vector>

namespace horo::cli {

struct Fact {
  std::string name;
  std::string value;
  /// What it means when it is not as it should be; empty when all is well.
  std::string advice;
};

/// Asks the system: cores, memory, sealed shared memory, waiting on several words, process handles, huge pages,
/// instruction sets, interfaces, OpenSSL.
std::vector<Fact> facts_of_this_machine();

/// The collective algorithms of this build, as a table.
std::string algorithms_text(bool colours);

}  // namespace horo::cli
