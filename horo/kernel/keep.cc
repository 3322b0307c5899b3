#include <algorithm>
#include <array>
#include <cstring>

#include "horo/kernel/kernels.h"

namespace horo::kernel {

void replace(std::byte* out, std::byte* kept, const std::byte* in, size_t bytes) {
  const size_t lines = bytes / 64 * 64;
  replace_lines(out, kept, in, lines);
  if (bytes > lines) {
    std::memcpy(kept + lines, out + lines, bytes - lines);
    std::memcpy(out + lines, in + lines, bytes - lines);
  }
  stream_fence();
}

void combine_and_keep(CombineManyFn combine, DType dtype, std::byte* out, std::byte* kept, size_t own,
                      std::span<const std::byte* const, 2> in, size_t count, const Scaling& scaling,
                      const std::byte* next) {
  // Little enough that a block is combined while the lines before it are still leaving.
  constexpr size_t kBlock = 512;
  const size_t element = size_of(dtype), bytes = count * element;
  for (size_t at = 0; at < bytes; at += kBlock) {
    const size_t size = std::min(kBlock, bytes - at), lines = size / 64 * 64;
    for (size_t line = 0; next != nullptr && line < size; line += 64) {
      __builtin_prefetch(next + at + line, kToRead, kIntoTheCoresOwnCache);
    }
    stream_lines(kept + at, in[own] + at, lines);
    if (size > lines) std::memcpy(kept + at + lines, in[own] + at + lines, size - lines);
    const std::array<const std::byte*, 2> here = {in[0] + at, in[1] + at};
    combine(out + at, here, size / element, scaling);
  }
  stream_fence();
}

}  // namespace horo::kernel
