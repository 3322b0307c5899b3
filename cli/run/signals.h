// Signals as something to read from a descriptor.
#pragma once

#include <initializer_list>
#include <vector>

#include "horo/base/status.h"
#include "horo/net/fd.h"

namespace horo::cli::launch {

class Signals {
 public:
  /// Blocks `numbers` in this thread and those it starts later, and ignores SIGPIPE.
  static Result<Signals> watch(std::initializer_list<int> numbers);
  int fd() const { return fd_.get(); }
  /// The numbers that arrived, each once or more. Never waits.
  std::vector<int> take();

 private:
  explicit Signals(net::UniqueFd fd) : fd_(std::move(fd)) {}
  net::UniqueFd fd_;
};

}  // namespace horo::cli::launch
