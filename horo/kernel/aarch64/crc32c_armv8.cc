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

}  // namespace

uint32_t crc32c_armv8(uint32_t state, const std::byte* data, size_t bytes) { return update_lanes(state, data, bytes); }

}  // namespace horo::kernel
