#include "horo/net/channel.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>

#include "horo/net/testing.h"
#include "horo/net/tls.h"

namespace horo::net {
namespace {

using testing::bytes_of;
using testing::soon;

std::shared_ptr<const Tls> tls() { return *Tls::create(); }

std::shared_ptr<const Key> shared_key(const Key& key) { return std::make_shared<const Key>(*key.copy()); }

/// Two sides of one connection and what they bring along.
struct Sides {
  std::shared_ptr<const Tls> settings = tls();
  Key client_key = *Key::random();
  Key server_key = *client_key.copy();
  Identity identity{"job", Purpose::kControl, 4, 1, 0};
  std::string server_job = "job";
  ChannelOptions client;
  ChannelOptions server;
  Admit admit;

  Sides() {
    client.hello = local_hello(1, 4);
    server.hello = local_hello(0, 4);
  }
  std::pair<Channel, Channel> open(Socket a, Socket b) const {
    auto one = Channel::connect(settings, std::move(a), client_key, identity, client);
    auto two = Channel::accept(settings, std::move(b), shared_key(server_key), server_job, server, admit);
    EXPECT_TRUE(one.ok() && two.ok()) << one.status() << two.status();
    return {std::move(*one), std::move(*two)};
  }
  std::pair<Channel, Channel> open() const {
    auto ends = Socket::pair();
    return open(std::move(ends->first), std::move(ends->second));
  }
};

/// Drives both ends in turn, in one thread, until they are ready or failed.
std::pair<Status, Status> shake(Channel& client, Channel& server) {
  Status one, two;
  for (int turn = 0; turn < 100; ++turn) {
    if (one.ok()) one = client.progress();
    if (!one.ok()) client.close();
    if (two.ok()) two = server.progress();
    if (!two.ok()) server.close();
    if ((!one.ok() || client.ready()) && (!two.ok() || server.ready())) return {one, two};
  }
  ADD_FAILURE() << "the handshake neither ends nor fails";
  return {one, two};
}

std::pair<Channel, Channel> ready_pair(const Sides& sides = {}) {
  auto both = sides.open();
  auto [one, two] = shake(both.first, both.second);
  EXPECT_TRUE(one.ok() && two.ok()) << one << two;
  return both;
}

FrameHeader header_of(uint8_t type) {
  FrameHeader header;
  header.type = type;
  return header;
}

TEST(Channel, CarriesMessagesBothWaysForThoseWhoHoldTheKey) {
  auto [client, server] = ready_pair();
  EXPECT_EQ(server.identity(), client.identity());
  EXPECT_EQ(server.theirs().member, 1u);
  EXPECT_EQ(client.theirs().member, 0u);
  EXPECT_EQ(client.version(), kWireVersionHighest);
  for (auto [from, to] : {std::pair(&client, &server), std::pair(&server, &client)}) {
    ASSERT_TRUE(from->send(header_of(5), bytes_of("hello")).ok());
    ASSERT_TRUE(from->send(header_of(6), {}).ok());
    ASSERT_TRUE(from->flush(soon()).ok());
    auto first = to->receive(soon());
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_EQ(first->header.type, 5);
    EXPECT_TRUE(std::ranges::equal(first->payload, bytes_of("hello")));
    EXPECT_EQ(to->receive(soon())->header.type, 6);
    EXPECT_FALSE(to->receive()->has_value());
  }
}

TEST(Channel, WorksOverTcpWithTinyBuffersAndLongMessages) {
  Sides sides;
  ListenOptions tiny;
  tiny.socket.receive_buffer = tiny.socket.send_buffer = 4096;
  auto listener = ListenSocket::listen(Address::loopback(), tiny);
  auto socket = Socket::connect(listener->address(), soon(), tiny.socket);
  ASSERT_TRUE(wait_ready(listener->fd(), Interest::kRead, soon(), "accepting").ok());
  auto [client, server] = sides.open(std::move(*socket), std::move(**listener->accept()));
  auto random = testing::seeded();
  const auto long_one = testing::random_bytes(random, (4 << 20) + 17);
  // Both send first and receive then: neither may wait for the other to take everything.
  auto side = [&](Channel& channel) {
    ASSERT_TRUE(channel.handshake(soon()).ok());
    for (size_t bytes : {long_one.size(), size_t{1}, size_t{16384}, size_t{0}}) {
      ASSERT_TRUE(channel.send(header_of(1), std::span(long_one).first(bytes)).ok());
    }
    for (size_t bytes : {long_one.size(), size_t{1}, size_t{16384}, size_t{0}}) {
      auto message = channel.receive(soon());
      ASSERT_TRUE(message.ok()) << message.status();
      EXPECT_TRUE(std::ranges::equal(message->payload, std::span(long_one).first(bytes)));
    }
    ASSERT_TRUE(channel.flush(soon()).ok());
  };
  std::thread other([&side, &one = client] { side(one); });
  side(server);
  other.join();
}

TEST(Channel, WithAnotherKeyIsRefusedOnBothSidesInOneLine) {
  Sides sides;
  sides.server_key = *Key::random();
  auto [client, server] = sides.open();
  auto [one, two] = shake(client, server);
  for (const Status& status : {one, two}) {
    EXPECT_EQ(status.code(), Code::kUnauthenticated) << status;
    EXPECT_NE(status.message().find("key"), std::string::npos);
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  }
}

TEST(Channel, IsRefusedWithSwappedRolesAnotherAddresseeOrAnotherJob) {
  for (int which = 0; which < 3; ++which) {
    Sides sides;
    if (which == 0) sides.server.hello.member = 1;  // our own connection comes back to us
    if (which == 1) sides.server.hello.member = 2;
    if (which == 2) sides.server_job = "another";
    auto [client, server] = sides.open();
    auto [one, two] = shake(client, server);
    EXPECT_EQ(one.code(), Code::kUnauthenticated) << one;
    EXPECT_EQ(two.code(), Code::kUnauthenticated) << two;
  }
}

TEST(Channel, IsNotOpenedWithAHelloOfAnotherRank) {
  Sides sides;
  auto ends = Socket::pair();
  sides.client.hello.member = 3;
  EXPECT_EQ(Channel::connect(sides.settings, std::move(ends->first), sides.client_key, sides.identity, sides.client)
                .status()
                .code(),
            Code::kInvalidArgument);
}

TEST(Channel, NamesBothEpochsWhenTheyDiffer) {
  Sides sides;
  sides.server.hello.epoch = 5;
  auto [client, server] = sides.open();
  auto [one, two] = shake(client, server);
  for (const Status& status : {one, two}) {
    EXPECT_EQ(status.code(), Code::kIncompatible) << status;
    EXPECT_NE(status.message().find("epoch 4"), std::string::npos) << status;
    EXPECT_NE(status.message().find("epoch 5"), std::string::npos) << status;
  }
}

TEST(Channel, NamesBothSidesWhenTheirVersionsDoNotMeet) {
  Sides sides;
  sides.client.hello.lowest_version = sides.client.hello.highest_version = 7;
  sides.client.hello.host = "node-a";
  sides.server.hello.host = "node-b";
  auto [client, server] = sides.open();
  auto [one, two] = shake(client, server);
  for (const Status& status : {one, two}) {
    EXPECT_EQ(status.code(), Code::kIncompatible) << status;
    EXPECT_NE(status.message().find("node-a"), std::string::npos) << status;
    EXPECT_NE(status.message().find("node-b"), std::string::npos) << status;
    EXPECT_NE(status.message().find("version 7"), std::string::npos) << status;
  }
}

TEST(Channel, TellsTheRefusedSideWhy) {
  Sides sides;
  sides.admit = [](const Identity& identity, const Hello&) {
    return Status(Code::kUnavailable, text(member_text(identity.connector), " is taken"));
  };
  auto [client, server] = sides.open();
  auto [one, two] = shake(client, server);
  EXPECT_EQ(one.code(), Code::kUnavailable) << one;
  EXPECT_NE(one.message().find("rank 1 is taken"), std::string::npos) << one;
  EXPECT_EQ(two.code(), Code::kUnavailable);
}

TEST(Channel, TellsAGoodbyeFromALostPeer) {
  {
    auto [client, server] = ready_pair();
    client.close();
    EXPECT_EQ(server.receive(soon()).status().code(), Code::kStopped);
  }
  auto [client, server] = ready_pair();
  { Channel lost = std::move(client); }
  Status status = server.receive(soon()).status();
  EXPECT_EQ(status.code(), Code::kPeerLost) << status;
  EXPECT_NE(status.message().find("rank 1"), std::string::npos) << status;
  EXPECT_EQ(server.send(header_of(1), {}).code(), Code::kPeerLost) << "the error stays";
}

TEST(Channel, BoundsItsQueueAndItsMessages) {
  Sides sides;
  sides.client.most_queued = 1 << 20;
  sides.server.most_message = 1000;
  auto [client, server] = ready_pair(sides);
  std::vector<std::byte> payload(400 << 10);
  EXPECT_TRUE(client.send(header_of(1), payload).ok());
  EXPECT_TRUE(client.send(header_of(1), payload).ok());
  EXPECT_EQ(client.send(header_of(1), payload).code(), Code::kUnavailable);
  EXPECT_EQ(server.send(header_of(1), payload).code(), Code::kInvalidArgument);
  ASSERT_TRUE(client.progress().ok());
  EXPECT_EQ(server.receive(soon()).status().code(), Code::kCorrupt) << "announced more than the limit";
}

TEST(Channel, ExportsTheSameKeyOnBothSidesAndAnotherInEveryChannel) {
  Sides sides;
  auto [client, server] = ready_pair(sides);
  auto [other, other_server] = ready_pair(sides);
  auto bytes = [](const Channel& channel, const char* label, const char* context) {
    auto key = channel.export_key(label, bytes_of(context));
    return std::vector<std::byte>(key->secret().begin(), key->secret().end());
  };
  EXPECT_EQ(bytes(client, "a", "b"), bytes(server, "a", "b"));
  EXPECT_NE(bytes(client, "a", "b"), bytes(client, "a", "c"));
  EXPECT_NE(bytes(client, "a", "b"), bytes(client, "b", "b"));
  EXPECT_NE(bytes(client, "a", "b"), bytes(other, "a", "b")) << "although job, key and ranks are the same";
}

TEST(Channel, PassesDescriptorsBetweenTwoMessages) {
  auto [client, server] = ready_pair();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  UniqueFd reader(ends[0]), writer(ends[1]);
  std::array<int, 2> sent = {reader.get(), writer.get()};
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(client.send(header_of(7), bytes_of("two descriptors follow")).ok());
    ASSERT_TRUE(client.flush(soon()).ok());
    ASSERT_TRUE(client.send_descriptors(sent, soon()).ok());
    ASSERT_TRUE(client.send(header_of(8), {}).ok());
    ASSERT_TRUE(client.flush(soon()).ok());
    EXPECT_EQ(server.receive(soon())->header.type, 7);
    auto got = server.receive_descriptors(2, soon());
    ASSERT_TRUE(got.ok()) << got.status();
    struct stat mine {
    }, theirs{};
    fstat(writer.get(), &mine);
    fstat(got->at(1).get(), &theirs);
    EXPECT_EQ(mine.st_ino, theirs.st_ino);
    EXPECT_EQ(server.receive(soon())->header.type, 8) << "TLS goes on where it was";
  }
}

TEST(Channel, RefusesAnotherNumberOfDescriptorsAndClosesThem) {
  auto [client, server] = ready_pair();
  size_t before = testing::open_descriptors();
  std::array<int, 3> sent = {0, 1, 2};
  ASSERT_TRUE(client.send_descriptors(sent, soon()).ok());
  EXPECT_EQ(server.receive_descriptors(2, soon()).status().code(), Code::kCorrupt);
  EXPECT_EQ(testing::open_descriptors(), before);
  EXPECT_FALSE(client.receive_descriptors(1, Deadline::after_seconds(0)).ok()) << "nobody sends any";
}

TEST(Channel, IsBusyWithASilentPeerOnlyUntilItsLimit) {
  Sides sides;
  sides.server.handshake_limit = std::chrono::milliseconds(30);
  auto ends = Socket::pair();
  auto server =
      Channel::accept(sides.settings, std::move(ends->first), shared_key(sides.server_key), "job", sides.server);
  Time start = Clock::now();
  Status status = server->handshake(soon());
  EXPECT_EQ(status.code(), Code::kTimeout) << status;
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
  EXPECT_EQ(server->progress().code(), Code::kTimeout) << "the error stays";
}

TEST(Channel, LeavesNoDescriptorsBehind) {
  auto settings = tls();
  size_t before = testing::open_descriptors();
  for (int round = 0; round < 20; ++round) {
    Sides sides;
    if (round % 2 == 1) sides.server_key = *Key::random();
    auto [client, server] = sides.open();
    shake(client, server);
  }
  EXPECT_EQ(testing::open_descriptors(), before);
}

}  // namespace
}  // namespace horo::net
