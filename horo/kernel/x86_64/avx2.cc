// AVX2 with F16C.
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

/// Nearest even, in the upper 16 bits of each lane. The canonical NaN is too far from the next exponent for the carry
/// to reach it.
inline __m256i rounded_to_bf16(__m256 value) {
  const __m256i bits = _mm256_castps_si256(canonical(value));
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  return _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
}

struct OrderedBF16 : Half<__m256> {
  static __m256 widen(__m128i halves) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
  static Wide load(const std::byte* from) {
    return {widen(load_raw<__m128i>(from)), widen(load_raw<__m128i>(from + 16))};
  }
  static void store(std::byte* to, Wide value) {
    const __m256i low = _mm256_srli_epi32(rounded_to_bf16(value.low), 16);
    const __m256i packed = _mm256_packus_epi32(low, _mm256_srli_epi32(rounded_to_bf16(value.high), 16));
    store_raw(to, _mm256_permute4x64_epi64(packed, _MM_SHUFFLE(3, 1, 2, 0)));
  }
};

/// The elements at even places in `low`, those at odd places in `high`: cheaper to take apart and to put together.
struct BF16 : Half<__m256> {
  static Wide load(const std::byte* from) {
    const auto both = load_raw<__m256i>(from);
    return {_mm256_castsi256_ps(_mm256_slli_epi32(both, 16)),
            _mm256_castsi256_ps(_mm256_and_si256(both, _mm256_set1_epi32(static_cast<int>(0xFFFF0000))))};
  }
  static void store(std::byte* to, Wide value) {
    const __m256i even = _mm256_srli_epi32(rounded_to_bf16(value.low), 16);
    store_raw(to, _mm256_blend_epi16(even, rounded_to_bf16(value.high), 0xAA));
  }
};

using NativeF16 = F16;

using KeptRegister = __m256i;
inline void stream_register(std::byte* to, __m256i value) {
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), value);
}
/// A whole line, so that both its halves leave together.
template <class T>
using Vector = Pair<std::conditional_t<std::is_same_v<T, float>, __m256, __m256d>>;

#include "horo/kernel/x86_64/keep_x86.inc"
// Uses it.
#include "horo/kernel/kernels.inc"

}  // namespace

extern const Kernels kAvx2Kernels;
constinit const Kernels kAvx2Kernels = table_of(Isa::kAvx2);

}  // namespace horo::kernel
