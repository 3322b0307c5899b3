// What the launcher shows: lines of ranks with their prefix, its own lines, and files with the bytes of each rank.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cli/run/lines.h"
#include "cli/run/sink.h"

#include "horo/base/deadline.h"
#include "horo/base/status.h"
#include "horo/net/fd.h"

namespace horo::cli::launch {

struct ConsoleOptions {
  int ranks = 1;
  bool timestamps = false;
  std::string folder;  ///< For files; empty: none.
};

class Console {
 public:
  /// Makes the folders and files.
  static Result<Console> open(const ConsoleOptions& options);

  /// One more rank; its files, if there are any. Those that cannot be made are done without.
  void add_rank(int rank);
  /// Where its files are; empty: it has none.
  std::string folder_of(int rank) const;
  /// Bytes as they came from a rank.
  void write(int rank, Stream stream, std::string_view bytes);
  /// The rank has ended: what has no end of line is shown too.
  void finish(int rank);
  /// A line of the launcher, on standard error.
  void say(std::string_view line);

  /// Writes what can be written now. An error: nobody reads any more.
  Status flush();
  size_t queued() const;
  /// Those that wait to be written.
  std::vector<int> waiting() const;
  /// Everything, or what is possible until the deadline.
  void drain(Deadline deadline);

  const Tail& tail(int rank) const { return ranks_[static_cast<size_t>(rank)].tail; }

 private:
  struct RankState {
    std::array<LineCutter, 2> cutters;
    std::array<net::UniqueFd, 2> files;
    Tail tail;
  };
  /// A sink and whose line is open on it.
  struct Target {
    Sink sink;
    LineMixer mixer;
  };

  explicit Console(const ConsoleOptions& options);
  Target& target(Stream stream);
  void show(int rank, Stream stream, std::string_view line);
  Status open_files(int rank);

  ConsoleOptions options_;
  std::vector<Target> targets_;  ///< Standard output and error; one when both lead to the same place.
  std::vector<RankState> ranks_;
  bool broken_ = false;
};

}  // namespace horo::cli::launch
