// Many cases side by side: a rank is forked from a process without threads, so each lane is a process of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace horo::test {

/// Runs `one` for each of `count` seeds from `first` on, in so many lanes; returns the lines that it gave, in any
/// order. What a case leaves behind is adopted by its lane (reap_orphans). A lane that breaks is a failure of the test.
std::vector<std::string> run_lanes(size_t lanes, uint64_t first, uint64_t count,
                                   const std::function<std::string(uint64_t seed)>& one);

/// Waits for everything that ranks left behind and that this lane has adopted. Empty when all have ended.
std::string reap_orphans();

}  // namespace horo::test
