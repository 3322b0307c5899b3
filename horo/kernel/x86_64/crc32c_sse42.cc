// CRC-32C with the instructions of SSE 4.2 and PCLMULQDQ.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "horo/kernel/crc32c_polynomial.h"
#include "horo/kernel/x86_64/crc32c_x86.h"

namespace horo::kernel {
namespace {

struct Crc {
  static uint32_t step(uint32_t state, uint64_t word) { return static_cast<uint32_t>(_mm_crc32_u64(state, word)); }
  static uint32_t step_byte(uint32_t state, uint8_t byte) { return _mm_crc32_u8(state, byte); }
  static uint64_t multiply(uint32_t a, uint32_t b) {
    const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128(static_cast<int>(a)),  //
                                                 _mm_cvtsi32_si128(static_cast<int>(b)), 0);
    return static_cast<uint64_t>(_mm_cvtsi128_si64(product));
  }
};

#include "horo/kernel/crc32c_lanes.inc"

}  // namespace

uint32_t crc32c_sse42(uint32_t state, const std::byte* data, size_t bytes) { return update_lanes(state, data, bytes); }

}  // namespace horo::kernel
