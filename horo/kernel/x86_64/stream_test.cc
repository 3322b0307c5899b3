#include <gtest/gtest.h>

#include "horo/kernel/kernel_testing.h"
#include "horo/kernel/kernels.h"
#include "horo/kernel/x86_64/stream_x86.h"

namespace horo::kernel {
namespace {

constexpr size_t kGroup = kStreamPages * kStreamPage;

void expect_replaces(decltype(&by_sse2::replace_lines) lines) {
  Random random(seed());
  for (size_t shift : {0, 1, 16}) {
    Buffer out(640, shift), in(640, 3), kept(640, 0);
    out.fill(DType::kU8, random), in.fill(DType::kU8, random);
    Buffer before(out);
    lines(out.data(), kept.data(), in.data(), 640);
    stream_fence();
    EXPECT_EQ(kept.bytes(), before.bytes()) << shift;
    EXPECT_EQ(out.bytes(), in.bytes()) << shift;
    EXPECT_TRUE(out.fences_intact() && kept.fences_intact()) << shift;
  }
}

void expect_copies(decltype(&by_sse2::stream_lines) lines, decltype(&by_sse2::stream_pages) pages) {
  Random random(seed());
  for (size_t shift : {0, 1, 16}) {
    // What is copied, and what is asked for beyond it.
    Buffer in(kGroup + 640, shift), by_line(640, 0), by_page(kGroup, 0);
    in.fill(DType::kU8, random);
    lines(by_line.data(), in.data(), 640);
    pages(by_page.data(), in.data());
    stream_fence();
    EXPECT_EQ(std::memcmp(by_line.data(), in.data(), 640), 0) << shift;
    EXPECT_EQ(std::memcmp(by_page.data(), in.data(), kGroup), 0) << shift;
    EXPECT_TRUE(by_line.fences_intact() && by_page.fences_intact()) << shift;
  }
}

TEST(Stream, CopiesWithFourStoresALine) { expect_copies(by_sse2::stream_lines, by_sse2::stream_pages); }

TEST(Stream, CopiesWithOneStoreALine) {
  if (best() != Isa::kAvx512) GTEST_SKIP() << "this processor has no AVX-512";
  expect_copies(by_avx512::stream_lines, by_avx512::stream_pages);
}

TEST(Stream, KeepsWithFourStoresALine) { expect_replaces(by_sse2::replace_lines); }

TEST(Stream, KeepsWithOneStoreALine) {
  if (best() != Isa::kAvx512) GTEST_SKIP() << "this processor has no AVX-512";
  expect_replaces(by_avx512::replace_lines);
}

}  // namespace
}  // namespace horo::kernel
