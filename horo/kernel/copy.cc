#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "horo/kernel/kernels.h"

namespace horo::kernel {

size_t stream_threshold() {
  static const size_t threshold = [] {
    const long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return static_cast<size_t>(std::max(l2, 1L << 20)) * 2;
  }();
  return threshold;
}

void copy(std::byte* out, const std::byte* in, size_t bytes, Placement placement) {
  if (placement == Placement::kCached || bytes < 256) {
    if (bytes > 0) std::memcpy(out, in, bytes);
    return;
  }
  const size_t head = -reinterpret_cast<uintptr_t>(out) % 64;
  std::memcpy(out, in, head);
  const size_t lines = (bytes - head) / 64 * 64;
  stream_lines(out + head, in + head, lines);
  std::memcpy(out + head + lines, in + head + lines, bytes - head - lines);
  stream_fence();
}

void copy(std::byte* out, const std::byte* in, size_t bytes) {
  copy(out, in, bytes, bytes >= stream_threshold() ? Placement::kStreamed : Placement::kCached);
}

}  // namespace horo::kernel
