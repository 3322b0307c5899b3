// Checksums, copies and the floating-point mode.
#include <gtest/gtest.h>

#include <cfenv>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "horo/kernel/kernel_testing.h"
#include "horo/kernel/kernels.h"
#include "horo/kernel/reduce.h"

namespace horo::kernel {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

TEST(Crc32c, GivesThePublishedValues) {
  EXPECT_EQ(crc32c(0, {}), 0U);
  EXPECT_EQ(crc32c(0, bytes_of("123456789")), 0xE3069283U);
  EXPECT_EQ(crc32c(0, bytes_of(std::string(32, '\0'))), 0x8A9136AAU);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(0, bytes_of(std::string(32, '\xFF'))), 0x62A8AB43U);
}

TEST(Crc32c, IsTheSameByEveryMethodAtEveryLengthAndAlignment) {
  Random random(seed());
  for (size_t size :
       {0, 1, 7, 8, 9, 63, 64, 255, 256, 257, 383, 384, 600, 1024, 3999, 4000, 4001, 6144, 7999, 8000, 8001, 20000}) {
    for (size_t shift : {0, 1, 7}) {
      Buffer data(size, shift);
      data.fill(DType::kU8, random);
      const auto state = static_cast<uint32_t>(random());
      const uint32_t expected = crc32c_table(state, data.data(), size);
      for (const Crc32cKernel& kernel : usable_crc32c()) {
        ASSERT_EQ(kernel.update(state, data.data(), size), expected) << kernel.name << " size " << size;
      }
    }
  }
}

TEST(Crc32c, ContinuesWhereItStopped) {
  Random random(seed());
  Buffer data(5000, 0);
  data.fill(DType::kU8, random);
  const uint32_t whole = crc32c(0, {data.data(), 5000});
  for (size_t cut : {0, 1, 63, 300, 2500, 4999, 5000}) {
    EXPECT_EQ(crc32c(crc32c(0, {data.data(), cut}), {data.data() + cut, 5000 - cut}), whole) << cut;
  }
}

TEST(Copy, CopiesEverySizeAtEveryAlignmentAndChecksums) {
  Random random(seed());
  for (size_t size :
       {size_t{0}, size_t{1}, size_t{255}, size_t{256}, size_t{4097}, size_t{30011}, stream_threshold() + 77}) {
    for (size_t shift : {0, 1, 13}) {
      Buffer in(size, shift), out(size, shift + 2), fused(size, 5), streamed(size, 9), later(size, 3), asked(size, 7);
      in.fill(DType::kU8, random);
      kernel::copy(out.data(), in.data(), size);
      kernel::copy(streamed.data(), in.data(), size, Placement::kStreamed);
      kernel::copy(asked.data(), in.data(), size, Placement::kAsked);
      kernel::copy_for_later(later.data(), in.data(), size);
      EXPECT_EQ(copy_crc32c(fused.data(), in.data(), size, 17), crc32c(17, {in.data(), size}));
      for (Buffer* result : {&out, &fused, &streamed, &later, &asked}) {
        ASSERT_EQ(result->bytes(), in.bytes()) << size;
        ASSERT_TRUE(result->fences_intact()) << size;
      }
    }
  }
}

TEST(Keep, KeepsWhatIsReplaced) {
  Random random(seed());
  for (size_t size : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{513}, size_t{16384}, size_t{70'001}}) {
    for (size_t shift : {0, 1, 16}) {
      Buffer before(size, shift), in(size, 3);
      before.fill(DType::kU8, random), in.fill(DType::kU8, random);
      Buffer out(before), kept(size, 0);
      kernel::replace(out.data(), kept.data(), in.data(), size);
      ASSERT_EQ(kept.bytes(), before.bytes()) << size;
      ASSERT_EQ(out.bytes(), in.bytes()) << size;
      ASSERT_TRUE(out.fences_intact() && kept.fences_intact()) << size;
    }
  }
}

TEST(Keep, KeepsEitherOfTwoThatAreCombined) {
  Random random(seed());
  for (DType dtype : {DType::kU8, DType::kF32, DType::kBF16, DType::kC128}) {
    for (const Scaling& scaling : {Scaling{}, Scaling{.factor = 0.5}}) {
      for (size_t count : {0, 1, 100, 5003, 40'000}) {
        const size_t size = count * size_of(dtype);
        for (const size_t own : {0, 1}) {
          Buffer first(size, 0), second(size, 3), expected(size, 0), apart(size, 1), kept(size, 0);
          first.fill(dtype, random), second.fill(dtype, random);
          const CombineManyFn sum = combine_many(dtype, ReduceOp::kSum);
          std::array<const std::byte*, 2> in = {first.data(), second.data()};
          sum(expected.data(), in, count, scaling);
          Buffer input(own == 0 ? first : second);
          combine_and_keep(sum, dtype, apart.data(), kept.data(), own, in, count, scaling, nullptr);
          ASSERT_EQ(apart.bytes(), expected.bytes()) << name(dtype) << count;
          ASSERT_EQ(kept.bytes(), input.bytes()) << name(dtype) << count;
          Buffer& place = own == 0 ? first : second;
          combine_and_keep(sum, dtype, place.data(), kept.data(), own, in, count, scaling, input.data());
          ASSERT_EQ(place.bytes(), expected.bytes()) << name(dtype) << count;
          ASSERT_EQ(kept.bytes(), input.bytes()) << name(dtype) << count;
          ASSERT_TRUE(apart.fences_intact() && kept.fences_intact() && place.fences_intact());
        }
      }
    }
  }
}

TEST(CombineCrc32c, CombinesAndChecksumsWhatWasReceived) {
  Random random(seed());
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kC128}) {
    for (size_t count : {0, 1, 100, 5003}) {
      const size_t size = count * size_of(dtype);
      Buffer mine(size, 0), received(size, 3), expected(size, 0), out(size, 1);
      mine.fill(dtype, random), received.fill(dtype, random);
      const CombineFn sum = combine(dtype, ReduceOp::kSum);
      const uint32_t crc = crc32c(0, {received.data(), size});
      sum(expected.data(), mine.data(), received.data(), count);
      EXPECT_EQ(combine_crc32c(sum, dtype, {out.data(), mine.data(), received.data(), count}, 0), crc);
      EXPECT_EQ(out.bytes(), expected.bytes());
      EXPECT_EQ(combine_crc32c(sum, dtype, {received.data(), mine.data(), received.data(), count}, 0), crc);
      EXPECT_EQ(received.bytes(), expected.bytes()) << "in place";
    }
  }
}

float third(float value) {
  volatile float divided = value;
  divided = divided / 3.0F;
  return divided;
}

TEST(DefaultFloatMode, RoundsToNearestWhileItLivesAndRestoresTheCallersMode) {
  const float nearest = third(1.0F);
  ASSERT_EQ(std::fesetround(FE_DOWNWARD), 0);
  const float down = third(1.0F);
  {
    DefaultFloatMode mode;
    EXPECT_EQ(third(1.0F), nearest);
  }
  EXPECT_EQ(third(1.0F), down);
  ASSERT_EQ(std::fesetround(FE_TONEAREST), 0);
  EXPECT_NE(down, nearest);
}

TEST(DefaultFloatMode, KeepsTheModeWhenItIsTheDefaultAlready) {
  const float nearest = third(1.0F);
  {
    DefaultFloatMode mode;
    EXPECT_EQ(third(1.0F), nearest);
  }
  EXPECT_EQ(third(1.0F), nearest);
}

}  // namespace
}  // namespace horo::kernel
