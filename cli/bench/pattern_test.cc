// The data of a measurement: results are recognised, and so are wrong ones.
#include "cli/bench/pattern.h"

#include <gtest/gtest.h>

#include <cstring>

#include "horo/kernel/reduce.h"

namespace horo::bench {
namespace {

constexpr int kRanks = 3;
constexpr size_t kCount = 3 * 70000;  // More than a period.

std::vector<std::vector<std::byte>> inputs(const Pattern& pattern, DType dtype, uint64_t turn) {
  std::vector<std::vector<std::byte>> all(kRanks, std::vector<std::byte>(kCount * size_of(dtype)));
  for (int rank = 0; rank < kRanks; ++rank) pattern.fill(all[static_cast<size_t>(rank)], rank, turn);
  return all;
}

class PatternOf : public testing::TestWithParam<DType> {};

TEST_P(PatternOf, ASumByTheKernelsHoldsAndOneWrongBitDoesNot) {
  const DType dtype = GetParam();
  Pattern pattern(dtype, 3, kRanks);
  const auto in = inputs(pattern, dtype, 9);
  const std::vector<const std::byte*> parts{in[0].data(), in[1].data(), in[2].data()};
  std::vector<std::byte> sum(in[0].size());
  kernel::combine_many(dtype, ReduceOp::kSum)(sum.data(), parts, kCount, {});
  EXPECT_TRUE(pattern.holds(Op::kAllreduce, sum, 1, 9));
  EXPECT_FALSE(pattern.holds(Op::kAllreduce, sum, 1, 10));
  const size_t share = sum.size() / kRanks;
  EXPECT_TRUE(pattern.holds(Op::kReducescatter, std::span(sum).subspan(share, share), 1, 9));
  EXPECT_FALSE(pattern.holds(Op::kReducescatter, std::span(sum).subspan(share, share), 2, 9));
  sum[sum.size() - 1] ^= std::byte{1};
  EXPECT_FALSE(pattern.holds(Op::kAllreduce, sum, 1, 9));
}

INSTANTIATE_TEST_SUITE_P(DTypes, PatternOf,
                         testing::Values(DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kU8, DType::kI64,
                                         DType::kC64));

TEST(Pattern, MovedDataIsRecognised) {
  Pattern pattern(DType::kF32, 1, kRanks);
  const auto in = inputs(pattern, DType::kF32, 4);
  const size_t share = in[0].size() / kRanks;
  EXPECT_TRUE(pattern.holds(Op::kBroadcast, in[0], 2, 4));
  EXPECT_FALSE(pattern.holds(Op::kBroadcast, in[1], 2, 4));
  std::vector<std::byte> gathered, exchanged;
  for (const auto& one : in) {
    gathered.insert(gathered.end(), one.begin(), one.begin() + static_cast<long>(share));
    exchanged.insert(exchanged.end(), one.begin() + static_cast<long>(share),
                     one.begin() + static_cast<long>(2 * share));
  }
  EXPECT_TRUE(pattern.holds(Op::kAllgather, gathered, 0, 4));
  EXPECT_TRUE(pattern.holds(Op::kAlltoall, exchanged, 1, 4));
  EXPECT_FALSE(pattern.holds(Op::kAlltoall, exchanged, 0, 4));
  EXPECT_TRUE(pattern.holds(Op::kGather, gathered, 0, 4));
  EXPECT_FALSE(pattern.holds(Op::kGather, exchanged, 0, 4));
  EXPECT_TRUE(pattern.holds(Op::kGather, {}, 1, 4));
  EXPECT_TRUE(pattern.holds(Op::kScatter, std::span(in[0]).subspan(share, share), 1, 4));
  EXPECT_FALSE(pattern.holds(Op::kScatter, std::span(in[0]).subspan(share, share), 2, 4));
  EXPECT_TRUE(pattern.holds(Op::kSendRecv, in[0], kRanks - 1, 4));
  EXPECT_FALSE(pattern.holds(Op::kSendRecv, in[1], kRanks - 1, 4));
  EXPECT_TRUE(pattern.holds(Op::kSendRecv, {}, 1, 4));
}

}  // namespace
}  // namespace horo::bench
