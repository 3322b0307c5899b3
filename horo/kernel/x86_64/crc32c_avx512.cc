// CRC-32C by folding 256 bytes at once with 512-bit carry-less multiplications (VPCLMULQDQ).
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "horo/kernel/crc32c_polynomial.h"
#include "horo/kernel/x86_64/crc32c_x86.h"

namespace horo::kernel {
namespace {

/// Multiplies each 128-bit lane by x^kBits (modulo the polynomial, to 96 bits) and adds `next`.
template <uint64_t kBits>
inline __m512i folded(__m512i lanes, __m512i next) {
  // The lower half of a lane comes earlier in the message: 64 powers of x more.
  constexpr uint32_t kLater = shift_by(kBits), kEarlier = shift_by(kBits + 64);
  const __m512i constants = _mm512_broadcast_i32x4(_mm_set_epi64x(kLater, kEarlier));
  const __m512i low = _mm512_clmulepi64_epi128(lanes, constants, 0x00);
  const __m512i high = _mm512_clmulepi64_epi128(lanes, constants, 0x11);
  return _mm512_ternarylogic_epi64(low, high, next, 0x96);  // a ^ b ^ c
}

}  // namespace

uint32_t crc32c_avx512(uint32_t state, const std::byte* data, size_t bytes) {
  if (bytes < 256) return crc32c_sse42(state, data, bytes);
  const auto at = [&data](size_t offset) { return _mm512_loadu_si512(data + offset); };
  __m512i a = _mm512_xor_si512(at(0), _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(state))));
  __m512i b = at(64), c = at(128), d = at(192);
  data += 256, bytes -= 256;
  for (; bytes >= 256; data += 256, bytes -= 256) {
    a = folded<2048>(a, at(0));
    b = folded<2048>(b, at(64));
    c = folded<2048>(c, at(128));
    d = folded<2048>(d, at(192));
  }
  a = folded<512>(folded<512>(folded<512>(a, b), c), d);
  for (; bytes >= 64; data += 64, bytes -= 64) a = folded<512>(a, at(0));
  alignas(64) std::byte rest[64];
  _mm512_store_si512(rest, a);
  return crc32c_sse42(crc32c_sse42(0, rest, sizeof(rest)), data, bytes);
}

}  // namespace horo::kernel
