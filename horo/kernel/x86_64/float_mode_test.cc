#include <gtest/gtest.h>
#include <immintrin.h>

#include <limits>

#include "horo/kernel/reduce.h"

namespace horo::kernel {
namespace {

/// Denormal results and denormal operands are taken as zero.
constexpr unsigned kFlushToZero = 0x8040;

float half_of_smallest_normal() {
  volatile float value = std::numeric_limits<float>::min();
  value = value / 2;
  return value;
}

TEST(DefaultFloatMode, KeepsDenormalsThatTheCallerFlushes) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | kFlushToZero);
  EXPECT_EQ(half_of_smallest_normal(), 0.0F);
  {
    DefaultFloatMode mode;
    EXPECT_GT(half_of_smallest_normal(), 0.0F);
  }
  EXPECT_EQ(_mm_getcsr() & kFlushToZero, kFlushToZero);
  EXPECT_EQ(half_of_smallest_normal(), 0.0F);
  _mm_setcsr(before);
}

}  // namespace
}  // namespace horo::kernel
