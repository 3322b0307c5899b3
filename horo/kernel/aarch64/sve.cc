// CPUs with SVE, half arithmetic and bf16 conversions. Loops over plain types are vectorised by the compiler to any
// vector length; halves use the 128-bit instructions, which those CPUs run at full rate.
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

struct BF16 : Half<float32x4_t> {
  static Wide load(const std::byte* from) { return widened_bf16(load_raw<uint16x8_t>(from)); }
  static void store(std::byte* to, Wide value) {
    value = canonical(value);
    store_raw(to, vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(value.low), value.high));
  }
};

using OrderedBF16 = BF16;

struct NativeF16 {
  using Wide = float16x8_t;
  using Factor = float;
  static constexpr size_t kGroup = 8;
  static constexpr size_t kSize = 2;
  static Wide load(const std::byte* from) { return load_raw<float16x8_t>(from); }
  static void store(std::byte* to, Wide value) {
    const float16x8_t nan = vreinterpretq_f16_u16(vdupq_n_u16(0x7E00));
    store_raw(to, vbslq_f16(vceqq_f16(value, value), value, nan));
  }
};

#include "horo/kernel/kernels.inc"

}  // namespace

extern const Kernels kSveKernels;
constinit const Kernels kSveKernels = table_of(Isa::kSve);

}  // namespace horo::kernel
