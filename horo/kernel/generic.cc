// The baseline of the architecture, conversions in plain C++: the reference for every other instruction set.
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "horo/kernel/half.h"
#include "horo/kernel/kernels.h"

namespace horo::kernel {
namespace {

#include "horo/kernel/elements.inc"

struct F16 : Plain<float> {
  static constexpr size_t kSize = 2;
  static constexpr bool kWidens = true;
  static float load(const std::byte* from) { return f16_to_f32(load_raw<uint16_t>(from)); }
  static void store(std::byte* to, float value) { store_raw(to, f32_to_f16(value)); }
};

struct BF16 : Plain<float> {
  static constexpr size_t kSize = 2;
  static constexpr bool kWidens = true;
  static float load(const std::byte* from) { return bf16_to_f32(load_raw<uint16_t>(from)); }
  static void store(std::byte* to, float value) { store_raw(to, f32_to_bf16(value)); }
};

using OrderedBF16 = BF16;
using NativeF16 = F16;

#include "horo/kernel/kernels.inc"

}  // namespace

constinit const Kernels kGenericKernels = table_of(Isa::kGeneric);

}  // namespace horo::kernel
