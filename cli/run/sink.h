// Standard output and error of the launcher: written without ever blocking the loop, whatever they lead to.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "horo/base/status.h"
#include "horo/net/fd.h"

namespace horo::cli::launch {

class Sink {
 public:
  /// The descriptor stays open and keeps its flags: a terminal that other programs share must not become non-blocking.
  static Sink of(int descriptor);

  void add(std::string_view bytes) { queue_ += bytes; }
  /// Writes what can be written now. An error means that nobody reads any more: a closed pipe, a vanished terminal.
  Status flush();
  size_t queued() const { return queue_.size() - written_; }
  /// To be watched for writing while something is queued.
  int fd() const { return fd_; }

 private:
  Sink(int fd, net::UniqueFd reopened, bool may_block)
      : fd_(fd), reopened_(std::move(reopened)), may_block_(may_block) {}

  int fd_;
  net::UniqueFd reopened_;
  bool may_block_;
  std::string queue_;
  size_t written_ = 0;
};

/// Whether both lead to the same file, terminal or pipe, so that one queue must serve both.
bool same_target(int one, int other);

}  // namespace horo::cli::launch
