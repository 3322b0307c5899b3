// AVX2 with F16C.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "horo/kernel/kernels.h"

namespace horo::kernel {
namespace {

#include "horo/kernel/elements.inc"

struct F16 : Half<__m256> {
  static Wide load(const std::byte* from) {
    return {_mm256_cvtph_ps(load_raw<__m128i>(from)), _mm256_cvtph_ps(load_raw<__m128i>(from + 16))};
  }
  static void store(std::byte* to, Wide value) {
    value = canonical(value);
    store_raw(to, _mm256_cvtps_ph(value.low, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    store_raw(to + 16, _mm256_cvtps_ph(value.high, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
};

struct BF16 : Half<__m256> {
  static __m256 widen(__m128i halves) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
  static Wide load(const std::byte* from) {
    return {widen(load_raw<__m128i>(from)), widen(load_raw<__m128i>(from + 16))};
  }
  /// Nearest even, in the low 16 bits of each lane.
  static __m256i rounded(__m256 value) {
    const __m256i bits = _mm256_castps_si256(canonical(value));
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    // The canonical NaN is too far from the next exponent for the carry to reach it.
    return _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd), 16);
  }
  static void store(std::byte* to, Wide value) {
    const __m256i packed = _mm256_packus_epi32(rounded(value.low), rounded(value.high));
    store_raw(to, _mm256_permute4x64_epi64(packed, _MM_SHUFFLE(3, 1, 2, 0)));
  }
};

using NativeF16 = F16;

#include "horo/kernel/kernels.inc"

}  // namespace

extern const Kernels kAvx2Kernels;
constinit const Kernels kAvx2Kernels = table_of(Isa::kAvx2);

}  // namespace horo::kernel
