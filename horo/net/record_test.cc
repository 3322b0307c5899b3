#include "horo/net/record.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "horo/net/testing.h"

namespace horo::net {
namespace {

using Bytes = std::vector<std::byte>;
using Role = RecordCipher::Role;

struct Ends {
  RecordCipher sealing;
  RecordCipher opening;
};

Ends ends_of(Protection protection, uint64_t records_per_key = kRecordsPerKey) {
  Key key = *Key::random();
  Key same = *key.copy();
  return {*RecordCipher::create(Role::kSeal, protection, std::move(key), records_per_key),
          *RecordCipher::create(Role::kOpen, protection, std::move(same), records_per_key)};
}

Bytes sealed(RecordCipher& cipher, std::span<const std::byte> plain) {
  Bytes record;
  EXPECT_TRUE(cipher.seal(std::span(&plain, 1), record).ok());
  return record;
}

Status open(RecordCipher& cipher, std::span<const std::byte> record, Bytes& plain) {
  plain.assign(record.size() - kRecordExtra, std::byte{0});
  return cipher.open(record, plain.data());
}

class Record : public ::testing::TestWithParam<Protection> {};

INSTANTIATE_TEST_SUITE_P(Ciphers, Record, ::testing::Values(Protection::kAesGcm, Protection::kChaChaPoly));

TEST_P(Record, OpensToWhatWasSealedWhateverItsSize) {
  Ends ends = ends_of(GetParam());
  auto random = testing::seeded();
  for (size_t bytes : {size_t{1}, size_t{15}, size_t{16}, size_t{88}, size_t{4096}, kMostRecord - 1, kMostRecord}) {
    Bytes plain = testing::random_bytes(random, bytes), opened;
    Bytes record = sealed(ends.sealing, plain);
    EXPECT_EQ(record.size(), bytes + kRecordExtra);
    ASSERT_TRUE(open(ends.opening, record, opened).ok()) << bytes;
    EXPECT_EQ(opened, plain);
    if (bytes >= 16) {
      EXPECT_EQ(std::search(record.begin(), record.end(), plain.begin(), plain.end()), record.end())
          << "the bytes are not hidden";
    }
  }
}

TEST_P(Record, PartsAreSealedAsOne) {
  Ends ends = ends_of(GetParam());
  const Bytes one(100, std::byte{1}), two(3000, std::byte{2});
  Bytes record, opened, joined = one;
  joined.insert(joined.end(), two.begin(), two.end());
  const std::array<std::span<const std::byte>, 2> parts = {one, two};
  ASSERT_TRUE(ends.sealing.seal(parts, record).ok());
  ASSERT_TRUE(open(ends.opening, record, opened).ok());
  EXPECT_EQ(opened, joined);
}

TEST_P(Record, EqualBytesLookDifferentEachTime) {
  Ends ends = ends_of(GetParam());
  const Bytes plain(64, std::byte{5});
  EXPECT_NE(sealed(ends.sealing, plain), sealed(ends.sealing, plain));
}

TEST_P(Record, AFlippedBitAnywhereIsNoticed) {
  const Bytes plain(40, std::byte{7});
  Bytes opened;
  for (size_t at = kRecordHead; at < plain.size() + kRecordExtra; ++at) {
    Ends ends = ends_of(GetParam());
    Bytes record = sealed(ends.sealing, plain);
    record[at] ^= static_cast<std::byte>(1U << (at % 8));
    EXPECT_EQ(open(ends.opening, record, opened).code(), Code::kCorrupt) << at;
  }
}

TEST_P(Record, ALengthThatWasChangedIsNoticedEvenWhereTheBytesFit) {
  Ends ends = ends_of(GetParam());
  Bytes record = sealed(ends.sealing, Bytes(40, std::byte{7})), opened;
  record[0] = std::byte{24};
  record.resize(24 + kRecordExtra);
  EXPECT_EQ(open(ends.opening, record, opened).code(), Code::kCorrupt);
}

TEST_P(Record, ARepeatedMovedOrMissingRecordIsNoticed) {
  for (const std::vector<size_t>& order : {std::vector<size_t>{0, 0}, {1, 0}, {0, 2}}) {
    Ends ends = ends_of(GetParam());
    std::vector<Bytes> records;
    for (int i = 0; i < 3; ++i) records.push_back(sealed(ends.sealing, Bytes(50, std::byte{9})));
    Bytes opened;
    Status last;
    for (size_t i : order) last = open(ends.opening, records[i], opened);
    EXPECT_EQ(last.code(), Code::kCorrupt) << order[0] << ", " << order[1];
    EXPECT_NE(last.message().find("repeated"), std::string::npos) << last;
  }
}

TEST_P(Record, KeysOfAnotherStreamOpenNothing) {
  Ends one = ends_of(GetParam()), other = ends_of(GetParam());
  Bytes opened;
  EXPECT_EQ(open(other.opening, sealed(one.sealing, Bytes(50)), opened).code(), Code::kCorrupt);
}

TEST_P(Record, BothSidesTakeTheNextKeyAtTheSameRecord) {
  Ends ends = ends_of(GetParam(), 3);
  Ends never = ends_of(GetParam());
  Bytes opened;
  for (uint64_t i = 0; i < 10; ++i) {
    const Bytes plain(20, static_cast<std::byte>(i));
    ASSERT_TRUE(open(ends.opening, sealed(ends.sealing, plain), opened).ok()) << i;
    EXPECT_EQ(opened, plain);
  }
  // Who does not change cannot follow.
  Key key = *Key::random();
  RecordCipher changes = *RecordCipher::create(Role::kSeal, GetParam(), *key.copy(), 3);
  RecordCipher stays = *RecordCipher::create(Role::kOpen, GetParam(), std::move(key));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(open(stays, sealed(changes, Bytes(5)), opened).ok());
  EXPECT_EQ(open(stays, sealed(changes, Bytes(5)), opened).code(), Code::kCorrupt);
}

TEST_P(Record, AReaderGivesOutWholeRecordsHoweverTheyArrive) {
  Ends ends = ends_of(GetParam());
  auto random = testing::seeded();
  Bytes wire, expected, got;
  for (int i = 0; i < 20; ++i) {
    Bytes plain = testing::random_bytes(random, 1 + random() % kMostRecord);
    Bytes record = sealed(ends.sealing, plain);
    wire.insert(wire.end(), record.begin(), record.end());
    expected.insert(expected.end(), plain.begin(), plain.end());
  }
  RecordReader reader(std::move(ends.opening));
  for (size_t at = 0; at < wire.size();) {
    at += reader.take(std::span(wire).subspan(at, std::min<size_t>(1 + random() % 100000, wire.size() - at)));
    while (*reader.has_record()) {
      const size_t before = got.size();
      got.resize(before + reader.record_bytes());
      ASSERT_TRUE(reader.open(got.data() + before).ok());
    }
  }
  EXPECT_EQ(got, expected);
}

TEST_P(Record, AReaderRefusesLengthsThatNoRecordHas) {
  for (uint32_t length : {uint32_t{0}, static_cast<uint32_t>(kMostRecord) + 1, 0x4F524F48u}) {
    RecordReader reader(ends_of(GetParam()).opening);
    reader.take(std::as_bytes(std::span(&length, 1)));
    EXPECT_EQ(reader.has_record().status().code(), Code::kCorrupt) << length;
  }
}

}  // namespace
}  // namespace horo::net
