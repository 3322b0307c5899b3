// AVX-512 as all servers with it have it: F, BW, DQ, VL. The bf16 instructions of later ones are of no use here: they
// treat denormals as zero.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "horo/kernel/kernels.h"

namespace horo::kernel {
namespace {

#include "horo/kernel/elements.inc"

struct F16 : Half<__m512> {
  static Wide load(const std::byte* from) {
    return {_mm512_cvtph_ps(load_raw<__m256i>(from)), _mm512_cvtph_ps(load_raw<__m256i>(from + 32))};
  }
  static void store(std::byte* to, Wide value) {
    value = canonical(value);
    store_raw(to, _mm512_cvtps_ph(value.low, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    store_raw(to + 32, _mm512_cvtps_ph(value.high, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
};

struct BF16 : Half<__m512> {
  static __m512 widen(__m256i halves) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
  static Wide load(const std::byte* from) {
    return {widen(load_raw<__m256i>(from)), widen(load_raw<__m256i>(from + 32))};
  }
  /// Nearest even. The canonical NaN is too far from the next exponent for the carry to reach it.
  static __m256i rounded(__m512 value) {
    const __m512i bits = _mm512_castps_si512(canonical(value));
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i carried = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(carried, 16));
  }
  static void store(std::byte* to, Wide value) {
    store_raw(to, rounded(value.low));
    store_raw(to + 32, rounded(value.high));
  }
};

using NativeF16 = F16;

#include "horo/kernel/kernels.inc"

}  // namespace

extern const Kernels kAvx512Kernels;
constinit const Kernels kAvx512Kernels = table_of(Isa::kAvx512);

}  // namespace horo::kernel
