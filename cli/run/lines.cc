#include "cli/run/lines.h"

#include <algorithm>
#include <utility>

#include "horo/base/text.h"

namespace horo::cli::launch {

std::string_view name(Stream stream) { return stream == Stream::kStdout ? "stdout" : "stderr"; }

std::vector<std::string> LineCutter::add(std::string_view bytes) {
  std::vector<std::string> lines;
  while (!bytes.empty()) {
    // A "\r" at the end may be the first half of "\r\n": the next byte tells.
    if (!partial_.empty() && partial_.back() == '\r' && bytes[0] != '\n') {
      lines.push_back(std::exchange(partial_, {}));
      continue;
    }
    const size_t found = bytes.find_first_of("\r\n");
    const size_t room = kMostBytes - partial_.size();
    const bool ends = found != bytes.npos && found < room;
    const size_t taken = ends ? found + 1 : std::min(bytes.size(), room);
    partial_.append(bytes.substr(0, taken));
    bytes.remove_prefix(taken);
    const bool is_whole = ends && partial_.back() == '\n';
    if (is_whole || partial_.size() >= kMostBytes) lines.push_back(std::exchange(partial_, {}));
  }
  return lines;
}

std::string LineCutter::rest() { return std::exchange(partial_, {}); }

std::string LineMixer::separator(int rank, Stream stream) {
  const bool others = open_ && (rank != open_rank_ || stream != open_stream_);
  open_ = false;
  return others ? "\n" : "";
}

std::string LineMixer::write(int rank, Stream stream, std::string_view line, std::string_view clock) {
  std::string out = separator(rank, stream);
  if (timestamps_) out += clock;
  out += text("[", rank, "]<", name(stream), ">:");
  out += line;
  if (line.ends_with('\r')) {
    open_ = true;
    open_rank_ = rank;
    open_stream_ = stream;
  } else if (!line.ends_with('\n')) {
    out += '\n';
  }
  return out;
}

std::string LineMixer::write_own(std::string_view line) {
  std::string out = separator(-1, Stream::kStderr);
  out += line;
  if (!line.ends_with('\n')) out += '\n';
  return out;
}

void Tail::add(Stream stream, std::string_view line) {
  while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
  const bool cut = line.size() > kMostLineBytes;
  lines_.push_back(text("<", name(stream), ">:", line.substr(0, kMostLineBytes), cut ? " ..." : ""));
  if (lines_.size() > kMostLines) lines_.pop_front();
}

}  // namespace horo::cli::launch
