#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

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

TEST(LongSums, MakeOneNanAndLeaveTheModesAsTheyWere) {
  const uint64_t before = read_modes();
  const uint32_t payload = 0xFFC01234;
  std::vector<float> a(4096, 1.0F), b(4096, 2.0F);
  std::memcpy(&a[17], &payload, sizeof payload);
  std::memcpy(&b[4095], &payload, sizeof payload);
  combine(DType::kF32, ReduceOp::kSum, Isa::kNeon)(reinterpret_cast<std::byte*>(a.data()),
                                                   reinterpret_cast<const std::byte*>(a.data()),
                                                   reinterpret_cast<const std::byte*>(b.data()), a.size());
  EXPECT_EQ(read_modes(), before);
  EXPECT_EQ(std::bit_cast<uint32_t>(a[17]), 0x7FC00000U);
  EXPECT_EQ(std::bit_cast<uint32_t>(a[4095]), 0x7FC00000U);
  EXPECT_EQ(a[16], 3.0F);
}

}  // namespace
}  // namespace horo::kernel
