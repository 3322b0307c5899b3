// Powers of x modulo the Castagnoli polynomial, in the reflected form that the instructions use: bit i of a 32-bit
// value is the coefficient of x^(31-i).
#pragma once

#include <cstdint>

namespace horo::kernel {

inline constexpr uint32_t kCastagnoli = 0x82F63B78;

constexpr uint32_t times_x(uint32_t value) { return (value >> 1) ^ ((value & 1) != 0 ? kCastagnoli : 0); }

constexpr uint32_t multiply_modulo(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (int bit = 31; bit >= 0; --bit) {
    if (((b >> bit) & 1) != 0) product ^= a;
    a = times_x(a);
  }
  return product;
}

constexpr uint32_t power_of_x(uint64_t exponent) {
  uint32_t result = 0x80000000, square = times_x(0x80000000);
  for (; exponent != 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result = multiply_modulo(result, square);
    square = multiply_modulo(square, square);
  }
  return result;
}

/// What a carry-less multiplication must multiply by to move a remainder `bits` ahead. The product of reflected values
/// in a 64- or 128-bit register reads as 33 powers of x too many (one from the width of the product, 32 because the
/// constant has 32 bits, or because the crc instruction that reduces the product multiplies by x^32).
constexpr uint32_t shift_by(uint64_t bits) { return power_of_x(bits - 33); }

}  // namespace horo::kernel
