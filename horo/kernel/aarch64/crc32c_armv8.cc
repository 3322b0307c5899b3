// CRC-32C with the instructions of the ARMv8 CRC and PMULL extensions.
#include "horo/kernel/aarch64/crc32c_armv8.h"

#include <arm_acle.h>
#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "horo/kernel/crc32c_polynomial.h"
#include "horo/kernel/kernels.h"

namespace horo::kernel {
namespace {

struct Crc {
  static uint32_t step(uint32_t state, uint64_t word) { return __crc32cd(state, word); }
  static uint32_t step_byte(uint32_t state, uint8_t byte) { return __crc32cb(state, byte); }
  static uint64_t multiply(uint32_t a, uint32_t b) { return low(vreinterpretq_u64_p128(vmull_p64(a, b))); }

  using Folded = uint64x2_t;
  static Folded folded_at(const std::byte* from) {
    return vreinterpretq_u64_u8(vld1q_u8(reinterpret_cast<const uint8_t*>(from)));
  }
  static Folded folded(uint32_t state) { return vsetq_lane_u64(state, vdupq_n_u64(0), 0); }
  static Folded sum(Folded a, Folded b) { return veorq_u64(a, b); }
  template <uint32_t kLow, uint32_t kHigh>
  static Folded product(Folded from) {
    const poly128_t low_product = vmull_p64(vgetq_lane_u64(from, 0), kLow);
    const poly128_t high_product = vmull_high_p64(vreinterpretq_p64_u64(from), vdupq_n_p64(kHigh));
    return sum(vreinterpretq_u64_p128(low_product), vreinterpretq_u64_p128(high_product));
  }
  static uint64_t low(Folded from) { return vgetq_lane_u64(from, 0); }
  static uint64_t high(Folded from) { return vgetq_lane_u64(from, 1); }
};

#include "horo/kernel/crc32c_lanes.inc"

}  // namespace

uint32_t crc32c_armv8(uint32_t state, const std::byte* data, size_t bytes) { return update_lanes(state, data, bytes); }

}  // namespace horo::kernel
