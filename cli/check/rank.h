// `horo check-rank`: one rank of the self-test. It reduces without end, checks every sum, and tells how it ended.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "horo/base/status.h"

namespace horo::cli {

struct CheckRankOptions {
  int report = -1;        ///< A pipe to the self-test.
  int stop = -1;          ///< Rank 0's: a pipe whose end means that all shall stop.
  bool idle = false;      ///< Rank 0 stays away after the first sum until all shall stop; the others wait for it.
  bool mismatch = false;  ///< Rank 1 calls with another count once; then all go on.
};

/// What a rank says, a line each: "ready" after the first sum; one of the others at its end.
struct RankWord {
  enum class Kind : uint8_t { kReady, kDone, kFailed, kWrong } kind = Kind::kReady;
  uint64_t at = 0;          ///< Nanoseconds of the monotonic clock.
  uint64_t operations = 0;  ///< That succeeded.
  uint64_t mismatches = 0;  ///< That failed with a mismatch, as they should.
  int code = 0;             ///< kFailed: a horo_code.
  uint64_t operation = 0;   ///< kFailed: the number of the operation that failed.
  bool intact = true;       ///< kFailed: the input was what it had been.
  std::vector<int> lost;    ///< kFailed
  std::string message;      ///< To the end of the line.
};
std::string encode(const RankWord& word);
std::optional<RankWord> decode_word(std::string_view line);

/// The rank's place in the job comes from HORO_* variables. The exit code.
int run_check_rank(const CheckRankOptions& options);

}  // namespace horo::cli
