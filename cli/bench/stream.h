// A plain TCP connection between the first and the last rank: what a network gives without any library.
#pragma once

#include <cstddef>
#include <span>

#include "horo/api/horo.h"
#include "horo/base/status.h"
#include "horo/net/socket.h"

namespace horo::bench {

class Stream {
 public:
  /// All ranks call it: the address travels through `world`. The ranks in between get a stream that does nothing.
  static Result<Stream> meet(int rank, int size, horo_group* world);
  /// Sends and receives at once, on one thread.
  Status exchange(std::span<const std::byte> out, std::span<std::byte> in) const;

 private:
  net::Socket socket_;
};

}  // namespace horo::bench
