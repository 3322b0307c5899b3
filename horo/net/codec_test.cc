#include "horo/net/codec.h"

#include <gtest/gtest.h>

#include <cstring>

#include "horo/net/testing.h"

namespace horo::net {
namespace {

TEST(Codec, ReadsBackWhatWasWritten) {
  Writer out;
  out.u8(7);
  out.u16(0x1234);
  out.u32(0xDEADBEEF);
  out.u64(0x0123456789ABCDEF);
  out.boolean(true);
  out.string("horo");
  out.count(2);
  out.u16(1);
  out.u16(2);
  ASSERT_TRUE(out.status().ok());
  EXPECT_EQ(out.data()[1], std::byte{0x34}) << "little-endian";
  Reader in(out.data(), "a test");
  EXPECT_EQ(in.u8(), 7);
  EXPECT_EQ(in.u16(), 0x1234);
  EXPECT_EQ(in.u32(), 0xDEADBEEF);
  EXPECT_EQ(in.u64(), 0x0123456789ABCDEFu);
  EXPECT_TRUE(in.boolean());
  EXPECT_EQ(in.string(4), "horo");
  EXPECT_EQ(in.count(2, 2), 2u);
  EXPECT_EQ(in.u16() + in.u16(), 3);
  EXPECT_TRUE(in.finish().ok());
}

TEST(Codec, KeepsTheFirstErrorAndReturnsZerosAfterIt) {
  Writer out;
  out.u32(5);
  Reader in(out.data(), "a test");
  EXPECT_EQ(in.u64(), 0u);
  Status first = in.status();
  EXPECT_EQ(first.code(), Code::kCorrupt);
  EXPECT_EQ(in.u32(), 0u) << "although four bytes are there";
  EXPECT_EQ(in.string(9), "");
  EXPECT_EQ(in.count(9, 1), 0u);
  EXPECT_EQ(in.finish().message(), first.message());
}

TEST(Codec, ChecksLengthsAgainstTheirLimitAndAgainstWhatIsThere) {
  Writer out;
  out.u32(0xFFFFFFFF);
  EXPECT_EQ(Reader(out.data(), "a test").string(SIZE_MAX), "");
  Reader over(out.data(), "a test");
  EXPECT_EQ(over.count(10, 1), 0u);
  EXPECT_NE(over.status().message().find("limit of 10"), std::string::npos) << over.status();
  Writer two;
  two.count(3);
  two.u64(0);
  Reader short_of(two.data(), "a test");
  EXPECT_EQ(short_of.count(10, 4), 0u) << "three elements of four bytes are not in eight bytes";
  EXPECT_FALSE(short_of.ok());
}

TEST(Codec, ReportsLeftOverBytesAndBadTruthValues) {
  Writer out;
  out.u8(2);
  out.u8(0);
  Reader in(out.data(), "a test");
  in.u8();
  EXPECT_NE(in.finish().message().find("left over"), std::string::npos);
  Reader truth(out.data(), "a test");
  truth.boolean();
  EXPECT_FALSE(truth.ok());
}

TEST(Codec, StopsAtTheLimitOfAMessage) {
  Writer out(6);
  out.u32(1);
  out.u32(2);
  out.u16(3);
  EXPECT_FALSE(out.ok()) << "what fits later does not hide that something is missing";
  EXPECT_EQ(out.size(), 4u);
  EXPECT_EQ(out.status().code(), Code::kInvalidArgument);
}

TEST(Codec, SurvivesRandomBytes) {
  auto random = testing::seeded();
  for (int round = 0; round < 2000; ++round) {
    auto bytes = testing::random_bytes(random, random() % 64);
    Reader in(bytes, "a test");
    while (in.ok() && in.remaining() > 0) {
      switch (random() % 4) {
        case 0:
          in.u8();
          break;
        case 1:
          EXPECT_LE(in.bytes(16).size(), 16u);
          break;
        case 2:
          EXPECT_LE(in.count(8, 4), 8u);
          break;
        default:
          in.u32();
          break;
      }
    }
    EXPECT_LE(in.remaining(), bytes.size());
  }
}

}  // namespace
}  // namespace horo::net
