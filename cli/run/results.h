// What ranks hand back beside their output: bytes of each rank in a file of its own, and how the job ended.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/run/life.h"

#include "horo/net/fd.h"

namespace horo::cli::launch {

/// DIR/rank.N and DIR/outcome.json, for nobody but this user.
class Results {
 public:
  /// The folder must exist. kInvalidArgument when its files cannot be made.
  static Result<Results> open(const std::string& folder, int ranks);

  /// One more rank; without its file what it hands back is lost.
  void add_rank(int rank);
  /// Bytes as they came from a rank. What does not fit on the disk is told by outcome.json.
  void write(int rank, std::string_view bytes);
  void note_end(const RankEnd& end) { ends_.push_back(end); }
  /// Writes outcome.json: {"code", "first": the rank that failed first or null, "returned": ranks in the order in which
  /// their first bytes came, "ranks": [{"rank", "code", "signal", "asked", "error", "lost", "tail"}]}. `tail` gives a
  /// rank's last lines.
  void finish(const JobLife& life, const std::function<std::vector<std::string>(int rank)>& tail);

 private:
  struct RankFile {
    net::UniqueFd file;
    bool lost = false;  ///< Bytes that could not be written.
  };
  explicit Results(std::string folder) : folder_(std::move(folder)) {}

  std::string folder_;
  std::vector<RankFile> files_;
  std::vector<int> returned_;
  std::vector<RankEnd> ends_;
};

}  // namespace horo::cli::launch
