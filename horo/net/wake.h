// Wakes a thread that waits on descriptors, from any thread.
#pragma once

#include "horo/base/status.h"
#include "horo/net/fd.h"

namespace horo::net {

/// Readable from the first signal() until drain(). Signals add up to one.
class Wake {
 public:
  static Result<Wake> create();

  /// From any thread, and from signal handlers. Never blocks.
  void signal() const;
  /// Whether there was a signal since the last drain(); afterwards there is none.
  bool drain() const;
  /// To be watched for reading.
  int fd() const { return fd_.get(); }

 private:
  explicit Wake(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace horo::net
