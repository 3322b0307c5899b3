#include <algorithm>
#include <array>

#include "horo/kernel/crc32c_polynomial.h"
#include "horo/kernel/kernels.h"

namespace horo::kernel {

namespace {

constexpr std::array<uint32_t, 256> kTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? kCastagnoli : 0);
    table[byte] = value;
  }
  return table;
}();

/// Small enough that a block just checksummed is still in the first-level cache when it is read again.
constexpr size_t kBlock = kFollowsArrays ? 8192 : 4096;

}  // namespace

uint32_t crc32c_table(uint32_t state, const std::byte* data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) state = kTable[(state ^ static_cast<uint32_t>(data[i])) & 0xFF] ^ (state >> 8);
  return state;
}

uint32_t crc32c(uint32_t crc, std::span<const std::byte> data) {
  static const auto update = usable_crc32c().back().update;
  return ~update(~crc, data.data(), data.size());
}

uint32_t combine_crc32c(CombineFn combine, DType dtype, const Operands& operands, uint32_t crc) {
  const auto& [out, mine, received, count] = operands;
  const size_t size = size_of(dtype), step = kBlock / size;
  for (size_t done = 0, now = 0; done < count; done += now) {
    now = std::min(step, count - done);
    const size_t at = done * size;
    // While the checksum reads one operand, the other one is on its way.
    for (size_t line = 0; !kFollowsArrays && line < kBlock; line += 64) __builtin_prefetch(mine + at + line);
    crc = crc32c(crc, {received + at, now * size});
    combine(out + at, mine + at, received + at, now);
  }
  return crc;
}

}  // namespace horo::kernel
