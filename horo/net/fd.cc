#include "horo/net/fd.h"

#include <unistd.h>

#include <cerrno>

namespace horo::net {

void UniqueFd::reset(int fd) {
  int old = std::exchange(fd_, fd);
  if (old < 0) return;
  int saved = errno;
  // Not repeated on EINTR: Linux has released the number by then, and another thread may own it already.
  ::close(old);
  errno = saved;
}

}  // namespace horo::net
