#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "horo/kernel/reduce.h"

namespace horo::kernel {
namespace {

/// FPCR.FZ: denormal results and operands are taken as zero.
constexpr uint64_t kFlushToZero = 1UL << 24;

uint64_t read_modes() {
  uint64_t value = 0;
  asm volatile("mrs %0, fpcr" : "=r"(value));
  return value;
}

void write_modes(uint64_t value) { asm volatile("msr fpcr, %0" : : "r"(value)); }

float half_of_smallest_normal() {
  volatile float value = std::numeric_limits<float>::min();
  value = value / 2;
  return value;
}

TEST(DefaultFloatMode, KeepsDenormalsThatTheCallerFlushes) {
  const uint64_t before = read_modes();
  write_modes(before | kFlushToZero);
  EXPECT_EQ(half_of_smallest_normal(), 0.0F);
  {
    DefaultFloatMode mode;
    EXPECT_GT(half_of_smallest_normal(), 0.0F);
  }
  EXPECT_EQ(read_modes() & kFlushToZero, kFlushToZero);
  EXPECT_EQ(half_of_smallest_normal(), 0.0F);
  write_modes(before);
}

}  // namespace
}  // namespace horo::kernel
