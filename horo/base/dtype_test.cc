#include "horo/base/dtype.h"

#include <gtest/gtest.h>

namespace horo {
namespace {

TEST(DType, NamesAndValuesGoBothWays) {
  for (int value = 0; value < kDTypeCount; ++value) {
    auto dtype = static_cast<DType>(value);
    EXPECT_EQ(dtype_named(name(dtype)), dtype) << name(dtype);
    EXPECT_GT(size_of(dtype), 0u) << name(dtype);
  }
  EXPECT_EQ(dtype_named("f33"), std::nullopt);
  EXPECT_EQ(name(static_cast<DType>(kDTypeCount)), "unknown");
  EXPECT_FALSE(is_valid(static_cast<DType>(255)));
}

TEST(ReduceOp, NamesAndValuesGoBothWays) {
  for (int value = 0; value < kReduceOpCount; ++value) {
    auto op = static_cast<ReduceOp>(value);
    EXPECT_EQ(reduce_op_named(name(op)), op) << name(op);
  }
  EXPECT_EQ(reduce_op_named("mean"), std::nullopt);
  EXPECT_FALSE(is_valid(static_cast<ReduceOp>(kReduceOpCount)));
}

TEST(DType, SizesAreThoseOfTheWire) {
  EXPECT_EQ(size_of(DType::kU8), 1u);
  EXPECT_EQ(size_of(DType::kI16), 2u);
  EXPECT_EQ(size_of(DType::kBF16), 2u);
  EXPECT_EQ(size_of(DType::kF32), 4u);
  EXPECT_EQ(size_of(DType::kF64), 8u);
  EXPECT_EQ(size_of(DType::kC64), 8u);
  EXPECT_EQ(size_of(DType::kC128), 16u);
  EXPECT_EQ(size_of(DType::kF8E4M3), 1u);
}

TEST(DType, OnlyWhatMakesSenseCanBeReduced) {
  for (int value = 0; value < kReduceOpCount; ++value) {
    auto op = static_cast<ReduceOp>(value);
    EXPECT_TRUE(can_reduce(DType::kI32, op)) << name(op);
    EXPECT_FALSE(can_reduce(DType::kF8E4M3, op)) << name(op);
    EXPECT_FALSE(can_reduce(DType::kF8E5M2, op)) << name(op);
    EXPECT_FALSE(can_reduce(DType::kByte, op)) << name(op);
  }
  EXPECT_TRUE(can_reduce(DType::kBF16, ReduceOp::kMax));
  EXPECT_FALSE(can_reduce(DType::kF32, ReduceOp::kXor));
  EXPECT_TRUE(can_reduce(DType::kC64, ReduceOp::kSum));
  EXPECT_FALSE(can_reduce(DType::kC64, ReduceOp::kMin));
  EXPECT_TRUE(can_reduce(DType::kBool, ReduceOp::kOr));
  EXPECT_FALSE(can_reduce(DType::kBool, ReduceOp::kAverage));
  EXPECT_FALSE(can_reduce(DType::kF32, static_cast<ReduceOp>(kReduceOpCount)));
}

}  // namespace
}  // namespace horo
