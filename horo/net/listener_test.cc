#include "horo/net/listener.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "horo/net/testing.h"
#include "horo/net/tls.h"
#include "horo/net/wake.h"

namespace horo::net {
namespace {

using testing::bytes_of;
using testing::soon;

class ListenerTest : public ::testing::Test {
 protected:
  ListenerTest() {
    options_.job = "job";
    options_.channel.hello = local_hello(0, 4);
  }
  void open(Address at = Address::loopback()) {
    auto opened = Listener::open(at, tls_, key_, options_);
    ASSERT_TRUE(opened.ok()) << opened.status();
    listener_.emplace(std::move(*opened));
  }
  /// Lets the listener work until `done` says so.
  template <class Done>
  void run_until(Done done) {
    while (!done()) {
      ASSERT_FALSE(give_up_.expired()) << "nothing happens any more";
      std::array<PollItem, 1> items = {PollItem{listener_->fd()}};
      ASSERT_TRUE(poll_many(items, listener_->deadline().earlier(Deadline::after_seconds(0.05))).ok());
      ASSERT_TRUE(listener_->step().ok());
    }
  }
  Result<Channel> dial(Member rank = 1) {
    HORO_ASSIGN(Socket socket, Socket::connect(listener_->address(), soon()));
    ChannelOptions options;
    options.hello = local_hello(rank, 4);
    return Channel::connect(tls_, std::move(socket), *key_, {"job", Purpose::kControl, 4, rank, 0}, options);
  }
  Channel connected() {
    auto client = dial();
    std::optional<Channel> server;
    run_until([&] {
      Status progressed = client->progress();
      EXPECT_TRUE(progressed.ok()) << progressed;
      if (!server) server = listener_->take_channel();
      return server && client->ready();
    });
    listener_->add_session(*attach_keys(*server, Attaching::kIncoming));
    servers_.push_back(std::move(*server));
    return std::move(*client);
  }

  std::shared_ptr<const Tls> tls_ = *Tls::create();
  std::shared_ptr<const Key> key_ = std::make_shared<const Key>(*Key::random());
  ListenerOptions options_;
  std::optional<Listener> listener_;
  std::vector<Channel> servers_;
  Deadline give_up_ = soon();
};

TEST_F(ListenerTest, WithoutAKeyOrATlsContextIsAnErrorOfTheCall) {
  for (const auto& opened : {Listener::open(Address::loopback(), tls_, nullptr, options_).status(),
                             Listener::open(Address::loopback(), nullptr, key_, options_).status()}) {
    EXPECT_EQ(opened.code(), Code::kInvalidArgument) << opened;
    EXPECT_NE(opened.message().find("Key::none()"), std::string::npos) << opened;
  }
}

TEST_F(ListenerTest, HandsOverChannelsAndTheirStreams) {
  for (Address at : {Address::loopback(), *Address::unix_abstract(text("horo-listener-", getpid()))}) {
    open(at);
    Channel client = connected();
    EXPECT_EQ(servers_.back().theirs().member, 1u);
    AttachKeys keys = *attach_keys(client, Attaching::kOutgoing);
    AttachRequest about;
    about.stream = 3;
    AttachConnector stream(*Socket::connect(listener_->address(), soon()), keys, about, soon());
    std::optional<AttachedStream> taken;
    run_until([&] {
      EXPECT_TRUE(stream.progress().ok());
      taken = listener_->take_stream();
      return taken.has_value();
    });
    EXPECT_EQ(taken->about.stream, 3u);
    EXPECT_EQ(listener_->counts().channels, 1u);
    EXPECT_EQ(listener_->counts().streams, 1u);
    EXPECT_EQ(listener_->pending(), 0u);
  }
}

TEST_F(ListenerTest, AttachesWithABlockingCallFromAnotherThread) {
  open();
  Channel client = connected();
  AttachKeys keys = *attach_keys(client, Attaching::kOutgoing);
  std::atomic<bool> attached = false;
  std::thread other([&] { attached = attach(listener_->address(), keys, {}, soon()).ok(); });
  run_until([&] { return listener_->take_stream().has_value(); });
  other.join();
  EXPECT_TRUE(attached);
}

TEST_F(ListenerTest, NeedsAKeyBeyondThisMachine) {
  key_ = std::make_shared<const Key>(*Key::none());
  for (const char* at : {"0.0.0.0:0", "[::]:0", "10.0.0.1:0"}) {
    Status status = Listener::open(*Address::parse(at), tls_, key_, options_).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status;
    EXPECT_NE(status.message().find("key"), std::string::npos);
  }
  open();
  connected();
  key_ = std::make_shared<const Key>(*Key::random());
  EXPECT_TRUE(Listener::open(*Address::parse("0.0.0.0:0"), tls_, key_, options_).ok());
}

TEST_F(ListenerTest, ClosesGarbageAtOnce) {
  open();
  size_t before = testing::open_descriptors();
  auto random = testing::seeded();
  constexpr int kConnections = 200;
  for (int i = 0; i < kConnections; ++i) {
    auto bytes = testing::random_bytes(random, 1 + random() % 100);
    bytes[0] = static_cast<std::byte>(random() % 16);  // neither TLS nor ours
    auto socket = Socket::connect(listener_->address(), soon());
    ASSERT_TRUE(socket.ok()) << socket.status();
    ASSERT_TRUE(socket->send_all(bytes, soon()).ok());
    run_until([&] { return listener_->counts().garbage == static_cast<uint64_t>(i) + 1; });
  }
  EXPECT_EQ(listener_->pending(), 0u);
  EXPECT_EQ(testing::open_descriptors(), before);
}

TEST_F(ListenerTest, DropsTheOldestSilentOneWhenItsPlacesAreTaken) {
  options_.most_pending = 4;
  open();
  std::vector<Socket> silent;
  for (int i = 0; i < 10; ++i) silent.push_back(*Socket::connect(listener_->address(), soon()));
  run_until([&] { return listener_->counts().accepted == 10; });
  EXPECT_EQ(listener_->pending(), 4u);
  EXPECT_EQ(listener_->counts().dropped, 6u);
  std::array<std::byte, 1> byte;
  ASSERT_TRUE(wait_ready(silent[0].fd(), Interest::kRead, soon(), "closing").ok());
  EXPECT_FALSE(silent[0].receive(byte).is_would_block()) << "the oldest is closed";
  EXPECT_TRUE(silent[9].receive(byte).is_would_block()) << "the youngest is not";
  connected();
}

TEST_F(ListenerTest, EndsSlowConnectionsWhateverTheyTrickle) {
  options_.channel.handshake_limit = std::chrono::milliseconds(60);
  open();
  Channel good = connected();
  Socket slow = *Socket::connect(listener_->address(), soon());
  const std::array<std::byte, 3> opening = {std::byte{22}, std::byte{3}, std::byte{1}};
  size_t sent = 0;
  Time start = Clock::now();
  run_until([&] {
    if (sent < opening.size()) sent += slow.send(std::span(opening).subspan(sent, 1)).bytes();
    return listener_->counts().too_slow == 1;
  });
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(50));
  EXPECT_EQ(listener_->pending(), 0u);
}

TEST_F(ListenerTest, TakesNoMoreThanItsRateAndLosesNobody) {
  options_.most_pending = 8;
  options_.most_accepts_per_second = 200;
  open();
  Time start = Clock::now();
  std::vector<Socket> sockets;
  for (int i = 0; i < 28; ++i) sockets.push_back(*Socket::connect(listener_->address(), soon()));
  run_until([&] { return listener_->counts().accepted == 28; });
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(90)) << "20 beyond the reserve of 8, at 200 a second";
}

TEST_F(ListenerTest, RefusesTheSecondOneOfARankAndKeepsTheFirst) {
  std::vector<Member> members;
  options_.admit = [&](const Identity& identity, const Hello&) {
    if (std::find(members.begin(), members.end(), identity.connector) != members.end()) {
      return Status(Code::kUnavailable, text(member_text(identity.connector), " is here already"));
    }
    members.push_back(identity.connector);
    return Status();
  };
  open();
  Channel first = connected();
  auto second = dial();
  Status why;
  run_until([&] { return !(why = second->progress()).ok(); });
  EXPECT_EQ(why.code(), Code::kUnavailable);
  EXPECT_NE(why.message().find("rank 1 is here already"), std::string::npos) << why;
  FrameHeader header;
  header.type = 1;
  ASSERT_TRUE(first.send(header, {}).ok());
  ASSERT_TRUE(first.flush(soon()).ok());
  EXPECT_TRUE(servers_.back().receive(soon()).ok()) << "the holder is unaffected";
}

TEST_F(ListenerTest, TellsEpochsOfLaterConnections) {
  open();
  listener_->set_epoch(5);
  auto client = dial();
  Status why;
  run_until([&] { return !(why = client->progress()).ok(); });
  EXPECT_EQ(why.code(), Code::kIncompatible) << why;
}

TEST(Opening, IsJudgedByItsFirstBytes) {
  auto opening = [](const std::vector<int>& bytes) {
    std::vector<std::byte> first;
    for (int byte : bytes) first.push_back(static_cast<std::byte>(byte));
    return look_at(first);
  };
  EXPECT_EQ(opening({}), Opening::kUndecided);
  EXPECT_EQ(opening({22, 3}), Opening::kUndecided);
  EXPECT_EQ(opening({'H', 'A', 'T'}), Opening::kUndecided);
  EXPECT_EQ(opening({'H', 'A', 'T', 'T'}), Opening::kAttach);
  EXPECT_EQ(opening({'H', 'T', 'T', 'P'}), Opening::kGarbage);
  EXPECT_EQ(opening({'G', 'E', 'T'}), Opening::kGarbage);
  EXPECT_EQ(opening({22, 3, 1, 1, 0, 1, 0, 0, 252, 3, 3}), Opening::kTls);
  EXPECT_EQ(opening({22, 3, 1, 1, 0, 1, 0, 0, 251, 3, 3}), Opening::kGarbage) << "the lengths differ";
  EXPECT_EQ(opening({22, 3, 1, 64, 0, 1}), Opening::kGarbage) << "16 KiB is no hello of ours";
  EXPECT_EQ(opening({22, 3, 1, 0, 4}), Opening::kGarbage) << "too short";
}

}  // namespace
}  // namespace horo::net
