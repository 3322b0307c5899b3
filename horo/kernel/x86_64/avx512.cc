// AVX-512 as all servers with it have it: F, BW, DQ, VL. The bf16 instructions of later ones are of no use here: they
// treat denormals as zero.
#include <immintrin.h>

#include <concepts>
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

/// Nearest even, in the upper 16 bits of each lane. The canonical NaN is too far from the next exponent for the carry
/// to reach it.
inline __m512i rounded_to_bf16(__m512 value) {
  const __m512i bits = _mm512_castps_si512(canonical(value));
  const __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
  const __m512i half_less = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF));
  return _mm512_mask_add_epi32(half_less, odd, half_less, _mm512_set1_epi32(1));
}

struct OrderedBF16 : Half<__m512> {
  static __m512 widen(__m256i halves) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
  static Wide load(const std::byte* from) {
    return {widen(load_raw<__m256i>(from)), widen(load_raw<__m256i>(from + 32))};
  }
  static void store(std::byte* to, Wide value) {
    store_raw(to, _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded_to_bf16(value.low), 16)));
    store_raw(to + 32, _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded_to_bf16(value.high), 16)));
  }
};

/// The elements at even places in `low`, those at odd places in `high`: cheaper to take apart and to put together.
struct BF16 : Half<__m512> {
  static Wide load(const std::byte* from) {
    const auto both = load_raw<__m512i>(from);
    return {_mm512_castsi512_ps(_mm512_slli_epi32(both, 16)),
            _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(static_cast<int>(0xFFFF0000))))};
  }
  static void store(std::byte* to, Wide value) {
    const __m512i even = _mm512_srli_epi32(rounded_to_bf16(value.low), 16);
    store_raw(to, _mm512_mask_blend_epi16(0xAAAAAAAA, even, rounded_to_bf16(value.high)));
  }
};

using NativeF16 = F16;

using KeptRegister = __m512i;
inline void stream_register(std::byte* to, __m512i value) {
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), value);
}
template <class T>
using Vector = std::conditional_t<std::is_same_v<T, float>, __m512, __m512d>;

#include "horo/kernel/x86_64/keep_x86.inc"
// Uses it.
#include "horo/kernel/kernels.inc"

}  // namespace

extern const Kernels kAvx512Kernels;
constinit const Kernels kAvx512Kernels = table_of(Isa::kAvx512);

}  // namespace horo::kernel
