// Every instruction set against the generic kernels, bit for bit, over random bits.
#include "horo/kernel/reduce.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "horo/kernel/kernel_testing.h"

namespace horo::kernel {
namespace {

constexpr std::array kPlacements = {Placement::kCached, Placement::kStreamed, Placement::kFetched,
                                    Placement::kReplacing, Placement::kAsked};

constexpr std::array<size_t, 14> kCounts = {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 131, 4096 + 3};

struct Case {
  DType dtype;
  ReduceOp op;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (int d = 0; d < kDTypeCount; ++d) {
    for (int o = 0; o < kReduceOpCount; ++o) {
      auto dtype = static_cast<DType>(d);
      auto op = static_cast<ReduceOp>(o);
      if (can_reduce(dtype, op)) cases.push_back({dtype, op});
    }
  }
  return cases;
}

class EveryDTypeAndOp : public testing::TestWithParam<Case> {
 protected:
  DType dtype_ = GetParam().dtype;
  ReduceOp op_ = GetParam().op;
  size_t size_ = size_of(GetParam().dtype);
  Random random_{seed()};
};

TEST_P(EveryDTypeAndOp, GivesTheSameBitsOnEveryInstructionSetWhateverTheAlignment) {
  for (Isa isa : available()) {
    for (size_t count : kCounts) {
      for (size_t shift : {0, 1, 2, 5}) {
        Buffer a(count * size_, shift), b(count * size_, shift + 1), out(count * size_, shift + 3);
        a.fill(dtype_, random_), b.fill(dtype_, random_);
        Buffer expected = a;
        combine(dtype_, op_, Isa::kGeneric)(expected.data(), a.data(), b.data(), count);
        combine(dtype_, op_, isa)(out.data(), a.data(), b.data(), count);
        ASSERT_EQ(out.bytes(), expected.bytes()) << name(isa) << " count " << count << " shift " << shift;
        ASSERT_TRUE(out.fences_intact()) << name(isa) << " count " << count;
      }
    }
  }
}

TEST_P(EveryDTypeAndOp, MayWriteOverEitherOperand) {
  for (Isa isa : available()) {
    for (size_t count : kCounts) {
      Buffer a(count * size_, 1), b(count * size_, 2);
      a.fill(dtype_, random_), b.fill(dtype_, random_);
      Buffer expected = a, left = a, right = b;
      combine(dtype_, op_, Isa::kGeneric)(expected.data(), a.data(), b.data(), count);
      combine(dtype_, op_, isa)(left.data(), left.data(), b.data(), count);
      combine(dtype_, op_, isa)(right.data(), a.data(), right.data(), count);
      ASSERT_EQ(left.bytes(), expected.bytes()) << name(isa) << " count " << count;
      ASSERT_EQ(right.bytes(), expected.bytes()) << name(isa) << " count " << count;
    }
  }
}

TEST_P(EveryDTypeAndOp, CombinesManyWithTheSameBitsScaledOrNotWhereverTheDataAre) {
  const std::array<Scaling, 4> scalings = {Scaling{}, Scaling{.divisor = 3}, Scaling{.factor = 2.5},
                                           Scaling{.factor = 0.7, .divisor = 7}};
  for (size_t inputs : {1, 2, 3, 4, 5, 7, 8, 9, 16}) {
    for (size_t count : {size_t{1}, size_t{37}, (inputs <= 2 ? 5 : 3) * 4096 / size_ + 5}) {
      std::vector<Buffer> in(inputs, Buffer(count * size_, 3));
      std::vector<const std::byte*> pointers;
      for (Buffer& one : in) one.fill(dtype_, random_), pointers.push_back(one.data());
      for (const Scaling& scaling : scalings) {
        Buffer expected(count * size_, 0), out(count * size_, 0);
        combine_many(dtype_, op_, Isa::kGeneric)(expected.data(), pointers, count, scaling);
        for (Isa isa : available()) {
          for (Placement placement : kPlacements) {
            combine_many(dtype_, op_, isa, placement)(out.data(), pointers, count, scaling);
            ASSERT_EQ(out.bytes(), expected.bytes()) << name(isa) << " inputs " << inputs << " count " << count
                                                     << " factor " << scaling.factor << " divisor " << scaling.divisor;
            ASSERT_TRUE(out.fences_intact());
          }
        }
      }
    }
  }
}

TEST_P(EveryDTypeAndOp, CombinesManyIntoAnyOfTheInputs) {
  for (Isa isa : available()) {
    for (size_t inputs : {1, 2, 4, 6, 9}) {
      const size_t count = (inputs <= 2 ? 5 : 2) * 4096 / size_ + 3;
      for (size_t target = 0; target < inputs; ++target) {
        std::vector<Buffer> in(inputs, Buffer(count * size_, 0));
        std::vector<const std::byte*> pointers;
        for (Buffer& one : in) one.fill(dtype_, random_), pointers.push_back(one.data());
        Buffer expected(count * size_, 0);
        const auto placement = kPlacements[target % kPlacements.size()];
        combine_many(dtype_, op_, Isa::kGeneric)(expected.data(), pointers, count, {});
        combine_many(dtype_, op_, isa, placement)(in[target].data(), pointers, count, {});
        ASSERT_EQ(in[target].bytes(), expected.bytes()) << name(isa) << " inputs " << inputs << " into " << target;
      }
    }
  }
}

TEST_P(EveryDTypeAndOp, CombinesTwoAsCombineDoes) {
  const size_t count = 517;
  Buffer a(count * size_, 0), b(count * size_, 0), two(count * size_, 0), many(count * size_, 0);
  a.fill(dtype_, random_), b.fill(dtype_, random_);
  const std::array<const std::byte*, 2> in = {a.data(), b.data()};
  combine(dtype_, op_)(two.data(), a.data(), b.data(), count);
  combine_many(dtype_, op_)(many.data(), in, count, {});
  EXPECT_EQ(two.bytes(), many.bytes());
}

TEST_P(EveryDTypeAndOp, KeepsOneOfTwoWhileItCombinesThem) {
  for (const Scaling& scaling : {Scaling{}, Scaling{.divisor = 3}, Scaling{.factor = 2.5}}) {
    for (size_t count : {size_t{0}, size_t{1}, size_t{37}, 21 * 1024 / size_ + 5}) {
      for (size_t shift : {0, 1, 16}) {
        Buffer own(count * size_, shift), other(count * size_, 2), expected(count * size_, 0), next(own);
        own.fill(dtype_, random_), other.fill(dtype_, random_);
        const std::array<const std::byte*, 2> in = {other.data(), own.data()};
        combine_many(dtype_, op_, Isa::kGeneric)(expected.data(), in, count, scaling);
        for (Isa isa : available()) {
          const CombineKeepingFn keeping = combine_keeping(dtype_, op_, isa);
          if (keeping == nullptr) continue;
          Buffer apart(count * size_, 3), in_place(own), kept(count * size_, 0);
          keeping(apart.data(), kept.data(), own.data(), other.data(), next.data(), count, scaling);
          ASSERT_EQ(apart.bytes(), expected.bytes()) << name(isa) << " count " << count << " shift " << shift;
          ASSERT_EQ(kept.bytes(), own.bytes()) << name(isa) << " count " << count << " shift " << shift;
          ASSERT_TRUE(apart.fences_intact() && kept.fences_intact());
          keeping(in_place.data(), kept.data(), in_place.data(), other.data(), nullptr, count, scaling);
          ASSERT_EQ(in_place.bytes(), expected.bytes()) << name(isa) << " in place, count " << count;
          ASSERT_EQ(kept.bytes(), own.bytes()) << name(isa) << " in place, count " << count;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, EveryDTypeAndOp, testing::ValuesIn(all_cases()), [](const auto& test) {
  return std::string(name(test.param.dtype)) + "_" + std::string(name(test.param.op));
});

TEST(Kernels, ExistExactlyWhereADtypeCanBeReduced) {
  for (int d = 0; d < kDTypeCount; ++d) {
    for (int o = 0; o < kReduceOpCount; ++o) {
      auto dtype = static_cast<DType>(d);
      auto op = static_cast<ReduceOp>(o);
      for (Isa isa : available()) {
        EXPECT_EQ(combine(dtype, op, isa) != nullptr, can_reduce(dtype, op)) << name(dtype) << name(op);
        EXPECT_EQ(combine_many(dtype, op, isa) != nullptr, can_reduce(dtype, op)) << name(dtype) << name(op);
      }
    }
    auto dtype = static_cast<DType>(d);
    EXPECT_EQ(scale(dtype) != nullptr, can_reduce(dtype, ReduceOp::kAverage)) << name(dtype);
  }
  EXPECT_EQ(combine(static_cast<DType>(200), ReduceOp::kSum), nullptr);
}

TEST(Kernels, OfMostInstructionSetsKeepWhileTheyCombineFloats) {
  for (Isa isa : available()) {
    const bool of_x86 = isa == Isa::kAvx2 || isa == Isa::kAvx512;
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kProduct}) {
      for (DType dtype : {DType::kF32, DType::kF64}) {
        EXPECT_EQ(combine_keeping(dtype, op, isa) != nullptr, of_x86 || isa == Isa::kNeon) << name(isa);
      }
      for (DType dtype : {DType::kF16, DType::kBF16}) {
        EXPECT_EQ(combine_keeping(dtype, op, isa) != nullptr, of_x86) << name(isa);
      }
    }
  }
}

TEST(Kernels, ListGenericFirstAndBestLast) {
  ASSERT_FALSE(available().empty());
  EXPECT_EQ(available().front(), Isa::kGeneric);
  EXPECT_EQ(available().back(), best());
}

}  // namespace
}  // namespace horo::kernel
