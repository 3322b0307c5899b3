#include "horo/net/frame.h"

#include <gtest/gtest.h>

#include "horo/kernel/reduce.h"
#include "horo/net/hello.h"
#include "horo/net/testing.h"

namespace horo::net {
namespace {

using testing::bytes_of;

FrameHeader sample() {
  FrameHeader header;
  header.type = 9;
  header.flags = 3;
  header.epoch = 0x1122334455667788;
  header.operation = 42;
  header.sequence = 43;
  header.offset = uint64_t{5} << 32;
  header.group = 6;
  header.tag = 7;
  header.source = 8;
  describe_payload(header, bytes_of("123456789"));
  return header;
}

/// A header with a right checksum around wrong contents.
void sign(FrameBytes& bytes) {
  uint32_t crc = kernel::crc32c(0, std::span(bytes).first(60));
  for (int i = 0; i < 4; ++i) bytes[60 + i] = static_cast<std::byte>(crc >> (8 * i));
}

TEST(Frame, IsReadAsItWasWritten) {
  FrameBytes bytes = encode(sample());
  auto read = decode_frame(bytes, 100);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, sample());
  EXPECT_EQ(std::string(reinterpret_cast<char*>(bytes.data()), 4), "HORO");
  EXPECT_EQ(sample().payload_crc, 0xE3069283u) << "the check value of CRC-32C";
}

TEST(Frame, IsRefusedWhenAnyBitOfItsHeaderChanges) {
  FrameBytes bytes = encode(sample());
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    FrameBytes damaged = bytes;
    damaged[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    auto read = decode_frame(damaged, 100);
    ASSERT_FALSE(read.ok()) << bit;
    EXPECT_EQ(read.status().code(), Code::kCorrupt);
  }
}

TEST(Frame, OfAnotherVersionTypeOrLengthIsRefusedPrecisely) {
  FrameBytes bytes = encode(sample());
  bytes[4] = std::byte{77};
  sign(bytes);
  EXPECT_EQ(decode_frame(bytes, 100).status().code(), Code::kIncompatible);
  EXPECT_NE(decode_frame(bytes, 100).status().message().find("77"), std::string::npos);
  bytes = encode(sample());
  EXPECT_NE(decode_frame(bytes, 8).status().message().find("limit is 8"), std::string::npos);
  bytes[6] = std::byte{0};
  sign(bytes);
  EXPECT_EQ(decode_frame(bytes, 100).status().code(), Code::kCorrupt);
}

TEST(Frame, ChecksItsPayload) {
  FrameHeader header = sample();
  EXPECT_TRUE(check_payload(header, bytes_of("123456789")).ok());
  EXPECT_EQ(check_payload(header, bytes_of("123456780")).code(), Code::kCorrupt);
  EXPECT_EQ(check_payload(header, bytes_of("12345678")).code(), Code::kCorrupt);
  describe_payload(header, {});
  EXPECT_TRUE(check_payload(header, {}).ok());
}

Result<Hello> read_back(std::span<const std::byte> bytes) {
  HORO_ASSIGN(size_t length, decode_hello_prefix(bytes.first<Hello::kPrefixBytes>()));
  EXPECT_EQ(length, bytes.size() - Hello::kPrefixBytes);
  return decode_hello_body(bytes.subspan(Hello::kPrefixBytes));
}

TEST(Hello, IsReadAsItWasWrittenAndSkipsWhatLaterVersionsAppend) {
  Hello hello = local_hello(3, 9);
  hello.features = 5;
  hello.verdict = Code::kIncompatible;
  hello.reason = "why not";
  auto bytes = encode(hello);
  EXPECT_EQ(*read_back(bytes), hello);
  bytes.push_back(std::byte{1});
  EXPECT_EQ(*decode_hello_body(std::span(bytes).subspan(Hello::kPrefixBytes)), hello);
  EXPECT_FALSE(hello.architecture.empty() || hello.build.empty() || hello.host.empty());
}

TEST(Hello, IsRefusedWhenTruncatedAnywhere) {
  auto bytes = encode(local_hello(3, 9));
  for (size_t length = Hello::kPrefixBytes; length < bytes.size(); ++length) {
    EXPECT_FALSE(decode_hello_body(std::span(bytes).subspan(Hello::kPrefixBytes, length - Hello::kPrefixBytes)).ok());
  }
  bytes[6] = std::byte{1};
  EXPECT_FALSE(decode_hello_prefix(std::span(bytes).first<Hello::kPrefixBytes>()).ok()) << "64 KiB and more";
  bytes[0] = std::byte{1};
  EXPECT_FALSE(decode_hello_prefix(std::span(bytes).first<Hello::kPrefixBytes>()).ok());
}

TEST(Hello, CutsTextsInsteadOfFailing) {
  Hello hello = local_hello(3, 9);
  hello.host.assign(1000, 'h');
  hello.reason.assign(100000, 'r');
  auto read = read_back(encode(hello));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->host, std::string(128, 'h'));
}

TEST(Hello, AgreesOnTheHighestCommonVersion) {
  Hello a = local_hello(0, 1), b = local_hello(1, 1);
  a.lowest_version = 2;
  a.highest_version = 5;
  b.lowest_version = 3;
  b.highest_version = 9;
  EXPECT_EQ(*agree(a, b), 5);
  EXPECT_EQ(*agree(b, a), 5);
  b.architecture = "another";
  EXPECT_TRUE(agree(a, b).ok());
  b.lowest_version = 6;
  for (const Status& status : {agree(a, b).status(), agree(b, a).status()}) {
    EXPECT_EQ(status.code(), Code::kIncompatible);
    EXPECT_NE(status.message().find("rank 0"), std::string::npos) << status;
    EXPECT_NE(status.message().find("rank 1"), std::string::npos) << status;
  }
}

TEST(Hello, NeedsTheFeaturesAndTheEpochOfTheOther) {
  Hello a = local_hello(0, 1), b = local_hello(1, 1);
  a.features = a.required_features = 4;
  EXPECT_EQ(agree(a, b).status().code(), Code::kIncompatible);
  EXPECT_EQ(agree(b, a).status().code(), Code::kIncompatible);
  b.features = 6;
  EXPECT_TRUE(agree(a, b).ok());
  b.epoch = 2;
  EXPECT_EQ(agree(a, b).status().code(), Code::kIncompatible);
}

TEST(Hello, ADifferenceInEncryptionNamesBothRanksAndTheKnob) {
  Hello a = local_hello(0, 1), b = local_hello(1, 1);
  a.features = a.required_features = feature::kEncryptsData;
  for (const Status& status : {agree(a, b).status(), agree(b, a).status()}) {
    EXPECT_EQ(status.code(), Code::kIncompatible);
    for (const char* words : {"rank 0", "rank 1", "HORO_ENCRYPT=1", "HORO_ENCRYPT=0"}) {
      EXPECT_NE(status.message().find(words), std::string::npos) << status;
    }
  }
}

}  // namespace
}  // namespace horo::net
