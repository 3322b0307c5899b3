// Bytes of ranks become lines: whole ones, each with its prefix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace horo::cli::launch {

/// kResult is what a rank hands back (HORO_RESULT_FD): it is stored, never shown.
enum class Stream : uint8_t { kStdout = 0, kStderr = 1, kResult = 2 };

/// "stdout", "stderr"
std::string_view name(Stream stream);

/// Cuts one stream into lines. A line ends with "\n", "\r\n" or "\r" (progress bars), which stays with it; a line that
/// grows beyond kMostBytes is given out in pieces. Any bytes may be in a line.
class LineCutter {
 public:
  static constexpr size_t kMostBytes = 1 << 20;

  /// The lines that are whole now.
  std::vector<std::string> add(std::string_view bytes);
  /// What is left without an end; empty when nothing is.
  std::string rest();

 private:
  std::string partial_;
};

/// Lines of several ranks on one terminal or file: never one inside another.
class LineMixer {
 public:
  explicit LineMixer(bool timestamps) : timestamps_(timestamps) {}

  /// What is to be written for `line` of a rank. `clock` is put in front if timestamps are wanted.
  std::string write(int rank, Stream stream, std::string_view line, std::string_view clock);
  /// The same for a line of the launcher itself, without prefix.
  std::string write_own(std::string_view line);

 private:
  std::string separator(int rank, Stream stream);

  bool timestamps_;
  /// Whose line is still open: it ended with "\r", or without an end.
  bool open_ = false;
  int open_rank_ = -1;
  Stream open_stream_ = Stream::kStdout;
};

/// The last lines of one rank, for the summary of a failure.
class Tail {
 public:
  static constexpr size_t kMostLines = 20;
  static constexpr size_t kMostLineBytes = 400;

  void add(Stream stream, std::string_view line);
  /// With their stream in front: "<stderr>:Traceback ...".
  std::vector<std::string> lines() const { return {lines_.begin(), lines_.end()}; }

 private:
  std::deque<std::string> lines_;
};

}  // namespace horo::cli::launch
