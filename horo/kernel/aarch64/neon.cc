// NEON as every aarch64 CPU has it: f16 conversions are part of it, bf16 ones are not.
#include <arm_neon.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "horo/kernel/kernels.h"

namespace horo::kernel {
namespace {

#include "horo/kernel/aarch64/half_neon.inc"

/// Nearest even, in the upper 16 bits of each lane. The canonical NaN is too far from the next exponent for the carry
/// to reach it.
inline uint32x4_t rounded_to_bf16(float32x4_t value) {
  const uint32x4_t bits = vreinterpretq_u32_f32(canonical(value));
  const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  return vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7FFF)), odd);
}

struct OrderedBF16 : Half<float32x4_t> {
  static Wide load(const std::byte* from) { return widened_bf16(load_raw<uint16x8_t>(from)); }
  static void store(std::byte* to, Wide value) {
    store_raw(to, vuzp2q_u16(vreinterpretq_u16_u32(rounded_to_bf16(value.low)),
                             vreinterpretq_u16_u32(rounded_to_bf16(value.high))));
  }
};

/// The elements at even places in `low`, those at odd places in `high`: cheaper to take apart and to put together.
struct BF16 : Half<float32x4_t> {
  static Wide load(const std::byte* from) {
    const auto both = load_raw<uint32x4_t>(from);
    return {vreinterpretq_f32_u32(vshlq_n_u32(both, 16)),
            vreinterpretq_f32_u32(vandq_u32(both, vdupq_n_u32(0xFFFF0000)))};
  }
  static void store(std::byte* to, Wide value) {
    store_raw(to, vsriq_n_u32(rounded_to_bf16(value.high), rounded_to_bf16(value.low), 16));
  }
};

using NativeF16 = F16;

#include "horo/kernel/aarch64/line_neon.inc"
// Uses it.
#include "horo/kernel/kernels.inc"

}  // namespace

extern const Kernels kNeonKernels;
constinit const Kernels kNeonKernels = table_of(Isa::kNeon);

}  // namespace horo::kernel
