// CRC-32C with the instructions of SSE 4.2 and PCLMULQDQ.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "horo/kernel/crc32c_polynomial.h"
#include "horo/kernel/kernels.h"
#include "horo/kernel/x86_64/crc32c_x86.h"

namespace horo::kernel {
namespace {

struct Crc {
  static uint32_t step(uint32_t state, uint64_t word) { return static_cast<uint32_t>(_mm_crc32_u64(state, word)); }
  static uint32_t step_byte(uint32_t state, uint8_t byte) { return _mm_crc32_u8(state, byte); }
  static uint64_t multiply(uint32_t a, uint32_t b) {
    const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128(static_cast<int>(a)),  //
                                                 _mm_cvtsi32_si128(static_cast<int>(b)), 0);
    return low(product);
  }

  using Folded = __m128i;
  static Folded folded_at(const std::byte* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }
  static Folded folded(uint32_t state) { return _mm_cvtsi32_si128(static_cast<int>(state)); }
  static Folded sum(Folded a, Folded b) { return _mm_xor_si128(a, b); }
  template <uint32_t kLow, uint32_t kHigh>
  static Folded product(Folded from) {
    const __m128i constants = _mm_set_epi64x(kHigh, kLow);
    return sum(_mm_clmulepi64_si128(from, constants, 0x00), _mm_clmulepi64_si128(from, constants, 0x11));
  }
  static uint64_t low(Folded from) { return static_cast<uint64_t>(_mm_cvtsi128_si64(from)); }
  static uint64_t high(Folded from) { return static_cast<uint64_t>(_mm_extract_epi64(from, 1)); }
};

#include "horo/kernel/crc32c_lanes.inc"

}  // namespace

uint32_t crc32c_sse42(uint32_t state, const std::byte* data, size_t bytes) { return update_lanes(state, data, bytes); }

}  // namespace horo::kernel
