// What people without the key, and people with it who lie, try against an accepting channel.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "horo/net/channel.h"
#include "horo/net/testing.h"
#include "horo/net/tls.h"

namespace horo::net {
namespace {

using testing::soon;

class ChannelAttack : public ::testing::Test {
 protected:
  ChannelAttack() { options_.hello = local_hello(0, 4); }

  Channel acceptor(Socket socket) { return *Channel::accept(tls_, std::move(socket), key_, "job", options_); }
  /// The first flight of an honest connector.
  std::vector<std::byte> client_hello() {
    auto [mine, theirs] = *Socket::pair();
    ChannelOptions options;
    options.hello = local_hello(1, 4);
    auto client = Channel::connect(tls_, std::move(mine), *key_, identity_, options);
    EXPECT_TRUE(client->progress().ok());
    std::vector<std::byte> bytes(4096);
    bytes.resize(theirs.receive(bytes).bytes());
    return bytes;
  }
  /// What an acceptor makes of `bytes` and then the end of the stream.
  Status judge(std::span<const std::byte> bytes) {
    auto [mine, theirs] = *Socket::pair();
    Channel server = acceptor(std::move(theirs));
    EXPECT_TRUE(mine.send_all(bytes, soon()).ok());
    mine.shutdown_send();
    Status status;
    for (int i = 0; i < 10 && status.ok(); ++i) status = server.progress();
    EXPECT_FALSE(server.ready());
    return status;
  }

  std::shared_ptr<const Tls> tls_ = *Tls::create();
  std::shared_ptr<const Key> key_ = std::make_shared<const Key>(*Key::random());
  Identity identity_{"job", Purpose::kControl, 4, 1, 0};
  ChannelOptions options_;
};

TEST_F(ChannelAttack, WithAHelloCutAnywhereGetsNowhere) {
  auto hello = client_hello();
  ASSERT_GT(hello.size(), 150u);
  ASSERT_LT(hello.size(), 1024u);
  for (size_t length = 0; length <= hello.size(); ++length) {
    EXPECT_FALSE(judge(std::span(hello).first(length)).ok()) << length;
  }
}

TEST_F(ChannelAttack, WithAHelloChangedAnywhereGetsNowhere) {
  auto random = testing::seeded();
  auto hello = client_hello();
  for (size_t at = 0; at < hello.size(); ++at) {
    auto changed = hello;
    changed[at] ^= static_cast<std::byte>(1 << (random() % 8));
    EXPECT_FALSE(judge(changed).ok()) << at;
  }
  for (int round = 0; round < 300; ++round) {
    auto changed = hello;
    for (size_t i = 0; i < 1 + random() % 8; ++i) changed[random() % changed.size()] = static_cast<std::byte>(random());
    if (random() % 4 == 0) changed.insert(changed.begin() + random() % changed.size(), random() % 64, std::byte{0});
    EXPECT_FALSE(judge(changed).ok()) << round;
  }
}

TEST_F(ChannelAttack, WithARecordedConnectionGetsNowhere) {
  // Record both flights of a good connection, then play them to a new acceptor.
  auto [a, b] = *Socket::pair();
  auto [c, d] = *Socket::pair();
  ChannelOptions options;
  options.hello = local_hello(1, 4);
  auto client = Channel::connect(tls_, std::move(a), *key_, identity_, options);
  Channel server = acceptor(std::move(d));
  std::vector<std::byte> recorded;
  auto relay = [](Socket& from, Socket& to, std::vector<std::byte>* record) {
    std::vector<std::byte> bytes(1 << 14);
    IoResult result = from.receive(bytes);
    bytes.resize(result.bytes());
    if (record != nullptr) record->insert(record->end(), bytes.begin(), bytes.end());
    EXPECT_TRUE(to.send_all(bytes, soon()).ok());
  };
  for (int turn = 0; turn < 10; ++turn) {
    ASSERT_TRUE(client->progress().ok());
    relay(b, c, &recorded);
    ASSERT_TRUE(server.progress().ok());
    relay(c, b, nullptr);
  }
  ASSERT_TRUE(client->ready() && server.ready());
  Status status = judge(recorded);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), Code::kUnauthenticated) << status;
}

TEST_F(ChannelAttack, WithGarbageAndEndlessBytesIsReadUpToTheLimit) {
  auto random = testing::seeded();
  for (int round = 0; round < 100; ++round) {
    auto bytes = testing::random_bytes(random, random() % 6000);
    EXPECT_FALSE(judge(bytes).ok());
  }
  // A first record that OpenSSL would read to its end: 16 KiB of handshake message. Only 4 KiB of it are taken.
  std::vector<std::byte> endless(16 << 10, std::byte{0});
  const int head[] = {22, 3, 1, 0x3F, 0xF0, 1, 0, 0x3F, 0xEC, 3, 3};
  std::transform(std::begin(head), std::end(head), endless.begin(), [](int byte) { return std::byte(byte); });
  auto [mine, theirs] = *Socket::pair();
  auto left = *Socket::adopt(UniqueFd(dup(theirs.fd())));
  Channel server = acceptor(std::move(theirs));
  ASSERT_TRUE(mine.send_all(endless, soon()).ok());
  Status status = server.progress();
  EXPECT_EQ(status.code(), Code::kUnauthenticated) << status;
  EXPECT_NE(status.message().find("4096"), std::string::npos) << status;
  std::vector<std::byte> rest(endless.size());
  EXPECT_EQ(left.receive(rest).bytes(), endless.size() - 4096);
}

/// Bytes over a socket, without a limit.
class PlainWire final : public Wire {
 public:
  explicit PlainWire(Socket socket) : socket_(std::move(socket)) {}
  IoResult receive(std::span<std::byte> into) override { return socket_.receive(into); }
  IoResult send(std::span<const std::byte> data) override { return socket_.send(data); }

 private:
  Socket socket_;
};

TEST_F(ChannelAttack, OfAMemberWhoClaimsToBeAnotherInsideTlsIsSeen) {
  for (bool wrong_rank : {true, false}) {
    auto [mine, theirs] = *Socket::pair();
    PlainWire wire(std::move(mine));
    auto encoded = *encode(identity_);
    auto client = TlsSession::connect(tls_, wire, encoded, *derive_psk(*key_, encoded));
    Channel server = acceptor(std::move(theirs));
    Status verdict;
    while (!(*client)->handshake().is_moved()) ASSERT_TRUE((verdict = server.progress()).ok());
    Hello lie = local_hello(wrong_rank ? 2 : 1, wrong_rank ? 4 : 5);
    ASSERT_TRUE((*client)->send(encode(lie)).is_moved());
    verdict = server.progress();
    EXPECT_EQ(verdict.code(), Code::kUnauthenticated) << verdict;
  }
}

TEST_F(ChannelAttack, OfAMemberWhoSendsNoHelloIsSeen) {
  auto [mine, theirs] = *Socket::pair();
  PlainWire wire(std::move(mine));
  auto encoded = *encode(identity_);
  auto client = TlsSession::connect(tls_, wire, encoded, *derive_psk(*key_, encoded));
  Channel server = acceptor(std::move(theirs));
  while (!(*client)->handshake().is_moved()) ASSERT_TRUE(server.progress().ok());
  std::vector<std::byte> garbage(100, std::byte{0x55});
  ASSERT_TRUE((*client)->send(garbage).is_moved());
  EXPECT_EQ(server.progress().code(), Code::kCorrupt);
}

TEST_F(ChannelAttack, OnTheWireEndsTheChannel) {
  auto [a, b] = *Socket::pair();
  ChannelOptions options;
  options.hello = local_hello(1, 4);
  auto wiretap = *Socket::adopt(UniqueFd(dup(a.fd())));
  auto client = Channel::connect(tls_, std::move(a), *key_, identity_, options);
  Channel server = acceptor(std::move(b));
  while (!client->ready() || !server.ready()) {
    ASSERT_TRUE(client->progress().ok());
    ASSERT_TRUE(server.progress().ok());
  }
  // A record of the right form that nobody made with the key.
  std::vector<std::byte> forged(5 + 64, std::byte{9});
  const int head[] = {23, 3, 3, 0, 64};
  std::transform(std::begin(head), std::end(head), forged.begin(), [](int byte) { return std::byte(byte); });
  ASSERT_TRUE(wiretap.send_all(forged, soon()).ok());
  EXPECT_EQ(server.receive(soon()).status().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace horo::net
