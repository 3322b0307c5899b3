// Two meshes with somebody in between who reads and changes what they say.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "horo/transport/tcp/wires_testing.h"

namespace horo::transport::tcp {
namespace {

using Bytes = std::vector<std::byte>;

constexpr Signature kSum{Kind::kAllreduce, DType::kF32, ReduceOp::kSum, 1, 0, 4};

Deadline soon() { return Deadline::after(std::chrono::seconds(30)); }

/// Rank 0 sends to rank 1, through hands that the test guides.
struct Tapped {
  Tapped() {
    auto [first, tap_first] = net::Socket::pair().value();
    auto [second, tap_second] = net::Socket::pair().value();
    auto [mine, theirs] = paired_keys(net::Protection::kAesGcm);
    std::vector<Sockets> to_rank_1(2), to_rank_0(2);
    to_rank_1[1].push_back({std::move(first), std::move(mine)});
    to_rank_0[0].push_back({std::move(second), std::move(theirs)});
    sender = Mesh::create({0, 2, 5, 9}, std::move(to_rank_1)).value();
    receiver = Mesh::create({1, 2, 5, 9}, std::move(to_rank_0)).value();
    from_sender = std::move(tap_first);
    to_receiver = std::move(tap_second);
  }

  /// The records of a message that rank 0 sends in operation `number`.
  std::vector<Bytes> tap(uint64_t number, const Bytes& data) {
    sender->begin(number, kSum);
    sender->send(1, data);
    EXPECT_TRUE(sender->wait(soon()).ok());
    Bytes wire(data.size() + 10000);
    wire.resize(from_sender.receive(wire).bytes());
    std::vector<Bytes> records;
    for (size_t at = 0; at < wire.size();) {
      uint32_t length = 0;
      std::memcpy(&length, wire.data() + at, 4);
      const size_t whole = length + net::kRecordExtra;
      EXPECT_LE(at + whole, wire.size());
      records.emplace_back(wire.begin() + static_cast<ptrdiff_t>(at),
                           wire.begin() + static_cast<ptrdiff_t>(at + whole));
      at += whole;
    }
    return records;
  }

  /// What rank 1 makes of it.
  Status pass(uint64_t number, const std::vector<Bytes>& records, Bytes& received) {
    for (const Bytes& record : records) EXPECT_TRUE(to_receiver.send_all(record, soon()).ok());
    receiver->begin(number, kSum);
    receiver->receive(0, received.size(), {received.data(), nullptr, nullptr, 1});
    return receiver->wait(soon());
  }

  std::unique_ptr<Mesh> sender, receiver;
  net::Socket from_sender, to_receiver;
};

/// Lies in several records.
const Bytes kData(70000, std::byte{7});

TEST(EncryptedStream, HidesTheBytesAndDeliversThem) {
  Tapped wires;
  Bytes received(kData.size());
  auto records = wires.tap(1, kData);
  EXPECT_EQ(records.size(), 4u) << "the head, and three of data";
  const Bytes some(16, std::byte{7}), magic = {std::byte{'H'}, std::byte{'O'}, std::byte{'R'}, std::byte{'O'}};
  for (const Bytes& record : records) {
    for (const Bytes& plain : {some, magic}) {
      EXPECT_EQ(std::search(record.begin(), record.end(), plain.begin(), plain.end()), record.end());
    }
  }
  EXPECT_TRUE(wires.pass(1, records, received).ok());
  EXPECT_EQ(received, kData);
}

struct Attack {
  const char* name;
  void (*change)(std::vector<Bytes>&);
};

class EncryptedStreamUnder : public ::testing::TestWithParam<Attack> {};

TEST_P(EncryptedStreamUnder, FailsForGoodAndNamesTheRanks) {
  Tapped wires;
  Bytes received(kData.size());
  auto first = wires.tap(1, kData);
  ASSERT_TRUE(wires.pass(1, first, received).ok());
  auto records = wires.tap(2, kData);
  GetParam().change(records);
  Status status = wires.pass(2, records, received);
  EXPECT_EQ(status.code(), Code::kCorrupt) << status;
  EXPECT_NE(status.message().find("from rank 0 to rank 1"), std::string::npos) << status;
  EXPECT_NE(status.message().find("encrypted record"), std::string::npos) << status;
  // Nothing on this stream is believed any more.
  EXPECT_EQ(wires.pass(3, wires.tap(3, kData), received).code(), Code::kCorrupt);
}

INSTANTIATE_TEST_SUITE_P(
    Attacks, EncryptedStreamUnder,
    ::testing::Values(
        Attack{"AFlippedBitOfData", [](std::vector<Bytes>& records) { records[2][100] ^= std::byte{1}; }},
        Attack{"AFlippedBitOfAHead", [](std::vector<Bytes>& records) { records[0][20] ^= std::byte{1}; }},
        Attack{"AFlippedBitOfATag", [](std::vector<Bytes>& records) { records[1].back() ^= std::byte{1}; }},
        Attack{"AChangedLength", [](std::vector<Bytes>& records) { records[1][0] ^= std::byte{1}; }},
        Attack{"AnImpossibleLength", [](std::vector<Bytes>& records) { records[1][3] = std::byte{0x7F}; }},
        Attack{"ARepeatedRecord", [](std::vector<Bytes>& records) { records[2] = records[1]; }},
        Attack{"ARepeatedMessage",
               [](std::vector<Bytes>& records) {
                 const auto copy = records;
                 records.insert(records.begin(), copy.begin(), copy.begin() + 2);
               }},
        Attack{"SwappedRecords", [](std::vector<Bytes>& records) { std::swap(records[1], records[2]); }},
        Attack{"AMissingRecord", [](std::vector<Bytes>& records) { records.erase(records.begin() + 1); }},
        Attack{"ACutRecord", [](std::vector<Bytes>& records) { records[1].pop_back(); }},
        Attack{"PlainBytes", [](std::vector<Bytes>& records) { records[0].assign(200, std::byte{'H'}); }}),
    [](const auto& tested) { return tested.param.name; });

TEST(EncryptedStream, CutOffAnywhereIsALostPeer) {
  Bytes received(kData.size());
  for (size_t kept : {size_t{0}, size_t{3}, size_t{50}}) {
    Tapped wires;
    auto records = wires.tap(1, kData);
    records.resize(2);
    records[1].resize(kept);
    wires.to_receiver.send_all(records[0], soon()).ok();
    wires.to_receiver.send_all(records[1], soon()).ok();
    wires.to_receiver.shutdown_send();
    Status status = wires.pass(1, {}, received);
    EXPECT_EQ(status.code(), Code::kPeerLost) << kept << ": " << status;
    EXPECT_EQ(status.lost(), std::vector<int>{0});
  }
}

TEST(EncryptedStream, RecordsSentBackToTheirSenderDoNotOpen) {
  Tapped wires;
  auto records = wires.tap(1, kData);
  for (const Bytes& record : records) ASSERT_TRUE(wires.from_sender.send_all(record, soon()).ok());
  Bytes received(kData.size());
  wires.sender->begin(2, kSum);
  wires.sender->receive(1, received.size(), {received.data(), nullptr, nullptr, 1});
  EXPECT_EQ(wires.sender->wait(soon()).code(), Code::kCorrupt);
}

}  // namespace
}  // namespace horo::transport::tcp
