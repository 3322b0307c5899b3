// What the bench understands, and what it refuses.
#include "cli/bench/options.h"

#include <gtest/gtest.h>

namespace horo::bench {
namespace {

TEST(BenchOptions, SizesArePowersOf1024) {
  EXPECT_EQ(parse_sizes("4,1K,64k,1M,1.5MiB,1G").value(),
            (std::vector<uint64_t>{4, 1024, 65536, 1 << 20, 3 << 19, 1 << 30}));
}

TEST(BenchOptions, RatesArePowersOf1000) {
  EXPECT_EQ(parse_rate("1gbit").value(), 1'000'000'000u);
  EXPECT_EQ(parse_rate("2.5Gbit").value(), 2'500'000'000u);
  EXPECT_EQ(parse_rate("100mbit").value(), 100'000'000u);
}

TEST(BenchOptions, WhatIsNoSizeIsNamed) {
  for (const char* wrong : {"", ",", "x", "1X", "-4", "1.2.3", "4,,8", "99999999999G", "1gbit"}) {
    const auto sizes = parse_sizes(wrong);
    ASSERT_FALSE(sizes.ok()) << wrong;
    EXPECT_EQ(sizes.status().code(), Code::kInvalidArgument);
  }
  EXPECT_NE(parse_sizes("4,12Q").status().message().find("'12Q'"), std::string::npos);
  EXPECT_FALSE(parse_rate("1G").ok());
}

TEST(BenchOptions, EveryRankHasAnEqualShare) {
  EXPECT_EQ(whole_count(Op::kAllreduce, 4, DType::kF32, 3), 1u);
  EXPECT_EQ(whole_count(Op::kAllgather, 4, DType::kF32, 3), 3u);
  EXPECT_EQ(whole_count(Op::kAlltoall, 1024, DType::kF64, 3), 129u);
  EXPECT_EQ(whole_count(Op::kScatter, 4, DType::kF32, 3), 3u);
  EXPECT_EQ(whole_count(Op::kSendRecv, 4, DType::kF32, 3), 1u);
  EXPECT_EQ(extent(Op::kAllgather, 12, 3, 1).input, 4u);
  EXPECT_EQ(extent(Op::kReducescatter, 12, 3, 1).output, 4u);
}

TEST(BenchOptions, OneOfTheRanksHasTheWholeTensor) {
  const auto both = [](Op op, int rank) {
    const Extent one = extent(op, 12, 3, rank);
    return std::pair(one.input, one.output);
  };
  EXPECT_EQ(both(Op::kGather, 0), std::pair(uint64_t{4}, uint64_t{12}));
  EXPECT_EQ(both(Op::kGather, 2), std::pair(uint64_t{4}, uint64_t{0}));
  EXPECT_EQ(both(Op::kScatter, 0), std::pair(uint64_t{12}, uint64_t{4}));
  EXPECT_EQ(both(Op::kScatter, 1), std::pair(uint64_t{0}, uint64_t{4}));
  EXPECT_EQ(both(Op::kSendRecv, 0), std::pair(uint64_t{12}, uint64_t{0}));
  EXPECT_EQ(both(Op::kSendRecv, 1), std::pair(uint64_t{0}, uint64_t{0}));
  EXPECT_EQ(both(Op::kSendRecv, 2), std::pair(uint64_t{0}, uint64_t{12}));
}

TEST(BenchOptions, WhatDoesNotGoTogetherIsRefused) {
  EXPECT_TRUE(validate({}).ok());
  EXPECT_FALSE(validate({.op = Op::kAllgather, .place = Place::kIn}).ok());
  EXPECT_FALSE(validate({.op = Op::kGather, .place = Place::kIn}).ok());
  EXPECT_FALSE(validate({.bits_per_second = 1}).ok());
  EXPECT_FALSE(validate({.ranks = 2, .hosts = 3}).ok());
  EXPECT_FALSE(validate({.hosts = 2, .transport = "shm"}).ok());
  EXPECT_FALSE(validate({.dtype = DType::kBool}).ok());
  EXPECT_FALSE(validate({.op = Op::kBarrier, .buffers = Buffers::kBoth}).ok());
}

}  // namespace
}  // namespace horo::bench
