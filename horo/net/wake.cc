#include "horo/net/wake.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "horo/net/system_error.h"

namespace horo::net {

Result<Wake> Wake::create() {
  UniqueFd fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) return system_error("opening an eventfd", errno);
  return Wake(std::move(fd));
}

void Wake::signal() const {
  int saved = errno;
  uint64_t one = 1;
  // EAGAIN means that 2^64-2 signals wait already: the reader is awake.
  while (::write(fd_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
  errno = saved;
}

bool Wake::drain() const {
  uint64_t count = 0;
  ssize_t got = 0;
  while ((got = ::read(fd_.get(), &count, sizeof count)) < 0 && errno == EINTR) {
  }
  return got == sizeof count;
}

}  // namespace horo::net
