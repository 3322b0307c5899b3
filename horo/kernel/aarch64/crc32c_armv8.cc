// CRC-32C with the instructions of the ARMv8 CRC and PMULL extensions.
#include "horo/kernel/aarch64/crc32c_armv8.h"

#include <arm_acle.h>
#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "horo/kernel/crc32c_polynomial.h"

namespace horo::kernel {
namespace {

struct Crc {
  static uint32_t step(uint32_t state, uint64_t word) { return __crc32cd(state, word); }
  static uint32_t step_byte(uint32_t state, uint8_t byte) { return __crc32cb(state, byte); }
  static uint64_t multiply(uint32_t a, uint32_t b) {
    return vgetq_lane_u64(vreinterpretq_u64_p128(vmull_p64(a, b)), 0);
  }
};

#include "horo/kernel/crc32c_lanes.inc"

using Folded = uint64x2_t;  // 16 bytes of a message, or what has the same remainder as all of it up to there.

/// `from` moved kBits ahead. The low half, which comes first in memory, is 64 powers of x above the high one.
template <size_t kBits>
inline Folded move_ahead(Folded from) {
  constexpr uint32_t kLow = shift_by(kBits + 64), kHigh = shift_by(kBits);
  const poly128_t low = vmull_p64(vgetq_lane_u64(from, 0), kLow);
  const poly128_t high = vmull_high_p64(vreinterpretq_p64_u64(from), vdupq_n_p64(kHigh));
  return veorq_u64(vreinterpretq_u64_p128(low), vreinterpretq_u64_p128(high));
}

inline Folded folded_at(const std::byte* from) {
  return vreinterpretq_u64_u8(vld1q_u8(reinterpret_cast<const uint8_t*>(from)));
}

/// Blocks of four parts: the first one is folded by multiplication, 64 bytes a turn, while the three lanes behind it go
/// through the crc instruction, 32 bytes each. The two kinds of instructions run beside each other: 25 GB/s on a
/// Neoverse N1, where lanes alone reach 19. Twice a block fits into 8 KiB, in which copies and sums have their data
/// checked.
constexpr size_t kFoldStep = 64, kLaneStep = 32, kTurns = 25;
constexpr size_t kFoldedPart = kTurns * kFoldStep, kLanePart = kTurns * kLaneStep;

inline uint32_t block_of_four(uint32_t state, const std::byte* data) {
  Folded folded[4];
  for (size_t j = 0; j < 4; ++j) folded[j] = folded_at(data + 16 * j);
  folded[0] = veorq_u64(folded[0], vsetq_lane_u64(state, vdupq_n_u64(0), 0));
  uint32_t one = 0, two = 0, three = 0;
  for (size_t turn = 0; turn < kTurns; ++turn) {
    const std::byte* lane = data + kFoldedPart + turn * kLaneStep;
    for (size_t i = 0; i < kLaneStep; i += 8) {
      one = Crc::step(one, word_at(lane + i));
      two = Crc::step(two, word_at(lane + kLanePart + i));
      three = Crc::step(three, word_at(lane + 2 * kLanePart + i));
    }
    if (turn == 0) continue;
    for (size_t j = 0; j < 4; ++j) {
      folded[j] = veorq_u64(move_ahead<8 * kFoldStep>(folded[j]), folded_at(data + turn * kFoldStep + 16 * j));
    }
  }
  Folded all = folded[0];
  for (size_t j = 1; j < 4; ++j) all = veorq_u64(move_ahead<128>(all), folded[j]);
  const uint32_t zero = Crc::step(Crc::step(0, vgetq_lane_u64(all, 0)), vgetq_lane_u64(all, 1));
  constexpr uint64_t kLaneBits = 8 * kLanePart;
  const uint64_t ahead = Crc::multiply(zero, shift_by(3 * kLaneBits)) ^ Crc::multiply(one, shift_by(2 * kLaneBits)) ^
                         Crc::multiply(two, shift_by(kLaneBits));
  return Crc::step(0, ahead) ^ three;
}

}  // namespace

uint32_t crc32c_armv8(uint32_t state, const std::byte* data, size_t bytes) {
  constexpr size_t kBlock = kFoldedPart + 3 * kLanePart;
  for (; bytes >= kBlock; bytes -= kBlock, data += kBlock) state = block_of_four(state, data);
  return update_lanes(state, data, bytes);
}

}  // namespace horo::kernel
