// `horo bench-rank FOLDER`: one rank of horo, started and told what to measure by `horo bench`.
#pragma once

#include <string>

namespace horo::bench {

/// Rank, size, store and key come from HORO_* variables, as for any rank. The exit code.
int run_bench_rank(const std::string& folder);

}  // namespace horo::bench
