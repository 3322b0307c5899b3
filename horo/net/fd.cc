#include "horo/net/fd.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>

namespace horo::net {

namespace {

// Which descriptors belong to horo: one bit each, because fork() concerns all of them wherever they are. Those beyond
// are left to close-on-exec.
constexpr int kTracked = 1 << 16;
std::array<std::atomic<uint64_t>, kTracked / 64> owned{};

}  // namespace

void UniqueFd::track(int fd) {
  if (fd >= 0 && fd < kTracked) {
    owned[static_cast<size_t>(fd) / 64].fetch_or(uint64_t{1} << (fd % 64), std::memory_order_relaxed);
  }
}

void UniqueFd::untrack(int fd) {
  if (fd >= 0 && fd < kTracked) {
    owned[static_cast<size_t>(fd) / 64].fetch_and(~(uint64_t{1} << (fd % 64)), std::memory_order_relaxed);
  }
}

void close_all_descriptors() {
  for (size_t word = 0; word < owned.size(); ++word) {
    uint64_t bits = owned[word].exchange(0, std::memory_order_relaxed);
    for (; bits != 0; bits &= bits - 1) ::close(static_cast<int>(word * 64) + __builtin_ctzll(bits));
  }
}

void UniqueFd::reset(int fd) {
  track(fd);
  int old = std::exchange(fd_, fd);
  if (old < 0) return;
  untrack(old);
  int saved = errno;
  // Not repeated on EINTR: Linux has released the number by then, and another thread may own it already.
  ::close(old);
  errno = saved;
}

}  // namespace horo::net
