// f16 and bf16 as bits: conversions from and to f32 in plain C++. They define the bits that every instruction set
// must produce: nearest even, denormals kept, any NaN becomes the one canonical quiet NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace horo::kernel {

inline constexpr uint16_t kF16NaN = 0x7E00;
inline constexpr uint16_t kBF16NaN = 0x7FC0;

constexpr float f16_to_f32(uint16_t half) {
  // The half's exponent and fraction, moved to where a float has them, read 2^-112 times the value.
  uint32_t magnitude = static_cast<uint32_t>(half & 0x7FFF) << 13;
  uint32_t scaled = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112F);
  uint32_t special = magnitude | 0x7F800000U;
  uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  return std::bit_cast<float>(sign | (magnitude >= (0x7C00U << 13) ? special : scaled));
}

constexpr uint16_t f32_to_f16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint32_t sign = (bits >> 16) & 0x8000;
  uint32_t magnitude = bits & 0x7FFFFFFF;
  // Normal halves: rebias the exponent, round the 13 bits that go; a carry runs into the exponent and up to infinity.
  uint32_t odd = (magnitude >> 13) & 1;
  uint32_t normal = (magnitude - (112U << 23) + 0xFFF + odd) >> 13;
  // Denormal halves: adding 1/2 leaves 2^-24 as the last bit of the sum, so the addition itself rounds.
  uint32_t shifted = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F);
  uint32_t denormal = shifted - std::bit_cast<uint32_t>(0.5F);
  uint32_t result = magnitude < std::bit_cast<uint32_t>(0x1p-14F) ? denormal : normal;
  result = magnitude >= std::bit_cast<uint32_t>(0x1p16F) ? 0x7C00 : result;
  return static_cast<uint16_t>(magnitude > 0x7F800000U ? kF16NaN : (sign | result));
}

constexpr float bf16_to_f32(uint16_t half) { return std::bit_cast<float>(static_cast<uint32_t>(half) << 16); }

constexpr uint16_t f32_to_bf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  return static_cast<uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000U ? kBF16NaN : rounded);
}

}  // namespace horo::kernel
