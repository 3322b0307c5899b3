#include "horo/net/attach.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "horo/net/testing.h"
#include "horo/net/tls.h"

namespace horo::net {
namespace {

using testing::bytes_of;
using testing::soon;

/// Two ends of a ready channel of rank 1 (connecting) and rank 0.
struct Pair {
  std::optional<Channel> client;
  std::optional<Channel> server;

  Pair() {
    auto tls = *Tls::create();
    auto key = std::make_shared<const Key>(*Key::random());
    auto ends = Socket::pair();
    ChannelOptions mine, theirs;
    mine.hello = local_hello(1, 4);
    theirs.hello = local_hello(0, 4);
    client.emplace(*Channel::connect(tls, std::move(ends->first), *key, {"job", Purpose::kControl, 4, 1, 0}, mine));
    server.emplace(*Channel::accept(tls, std::move(ends->second), key, "job", theirs));
    while (!client->ready() || !server->ready()) {
      EXPECT_TRUE(client->progress().ok());
      EXPECT_TRUE(server->progress().ok());
    }
  }
};

AttachRequest about() {
  AttachRequest request;
  request.epoch = 4;
  request.group = 7;
  request.stream = 2;
  return request;
}

class Attach : public ::testing::Test {
 protected:
  Attach() { sessions_.add(*attach_keys(*pair_.server, Attaching::kIncoming)); }

  /// Runs both ends in turn.
  Status run(AttachConnector& connector, AttachAcceptor& acceptor) {
    while (!connector.done() || !acceptor.done()) {
      HORO_TRY(connector.progress());
      HORO_TRY(acceptor.progress());
    }
    return {};
  }
  /// What an acceptor says when `first` and then `second` arrive; the challenge goes to `answer`.
  Status play(std::span<const std::byte> first, std::span<const std::byte> second, std::vector<std::byte>* answer) {
    auto [mine, theirs] = *Socket::pair();
    AttachAcceptor acceptor(std::move(theirs), sessions_, {}, soon());
    EXPECT_TRUE(mine.send_all(first, soon()).ok());
    HORO_TRY(acceptor.progress());
    std::vector<std::byte> got(64);
    HORO_TRY(mine.receive_all(got, soon()));
    if (answer != nullptr) *answer = got;
    EXPECT_TRUE(mine.send_all(second, soon()).ok());
    HORO_TRY(acceptor.progress());
    EXPECT_TRUE(acceptor.done());
    return {};
  }

  Pair pair_;
  AttachSessions sessions_;
  AttachKeys outgoing_ = *attach_keys(*pair_.client, Attaching::kOutgoing);
};

TEST_F(Attach, MakesPlainStreamsOfAChannelInBothDirections) {
  auto [a, b] = *Socket::pair();
  AttachConnector connector(std::move(a), outgoing_, about(), soon());
  AttachAcceptor acceptor(std::move(b), sessions_, {}, soon());
  ASSERT_TRUE(run(connector, acceptor).ok());
  AttachedStream one = connector.take(), two = acceptor.take();
  EXPECT_EQ(one.about, two.about);
  EXPECT_EQ(two.about.group, 7u);
  EXPECT_EQ(two.about.stream, 2u);
  ASSERT_TRUE(one.socket.send(bytes_of("data")).is_moved());
  std::array<std::byte, 8> got;
  EXPECT_EQ(two.socket.receive(got).bytes(), 4u) << "nothing of the data was taken before";

  AttachSessions at_client;
  at_client.add(*attach_keys(*pair_.client, Attaching::kIncoming));
  AttachKeys back = *attach_keys(*pair_.server, Attaching::kOutgoing);
  auto [c, d] = *Socket::pair();
  AttachConnector reverse(std::move(c), back, about(), soon());
  AttachAcceptor reverse_acceptor(std::move(d), at_client, {}, soon());
  EXPECT_TRUE(run(reverse, reverse_acceptor).ok());
}

TEST_F(Attach, GivesBothEndsOfAnEncryptedStreamTheSameKeysAndEveryStreamItsOwn) {
  auto attached = [&](uint32_t stream) {
    AttachRequest request = about();
    request.protection = Protection::kAesGcm;
    request.stream = stream;
    auto [a, b] = *Socket::pair();
    AttachConnector connector(std::move(a), outgoing_, request, soon());
    AttachAcceptor acceptor(std::move(b), sessions_, {}, soon());
    EXPECT_TRUE(run(connector, acceptor).ok());
    return std::pair(connector.take(), acceptor.take());
  };
  auto same = [](const Key& a, const Key& b) { return std::ranges::equal(a.secret(), b.secret()); };
  auto [one, two] = attached(2);
  auto [again, again_too] = attached(2);
  ASSERT_TRUE(one.keys && two.keys && again.keys);
  EXPECT_TRUE(same(one.keys->sending, two.keys->receiving));
  EXPECT_TRUE(same(one.keys->receiving, two.keys->sending));
  EXPECT_FALSE(same(one.keys->sending, one.keys->receiving));
  EXPECT_FALSE(same(one.keys->sending, again.keys->sending)) << "the same stream, attached again";
}

TEST_F(Attach, RefusesARecordedConnectionThatIsPlayedBack) {
  // Record what the connector says in a good attachment.
  auto [a, b] = *Socket::pair();
  auto [c, d] = *Socket::pair();
  AttachConnector connector(std::move(a), outgoing_, about(), soon());
  AttachAcceptor acceptor(std::move(d), sessions_, {}, soon());
  std::vector<std::byte> request(AttachRequest::kBytes), challenge(64), proof(32);
  ASSERT_TRUE(connector.progress().ok());
  ASSERT_TRUE(b.receive_all(request, soon()).ok());
  ASSERT_TRUE(c.send_all(request, soon()).ok());
  ASSERT_TRUE(acceptor.progress().ok());
  ASSERT_TRUE(c.receive_all(challenge, soon()).ok());
  ASSERT_TRUE(b.send_all(challenge, soon()).ok());
  ASSERT_TRUE(connector.progress().ok());
  ASSERT_TRUE(b.receive_all(proof, soon()).ok());
  ASSERT_TRUE(c.send_all(proof, soon()).ok());
  ASSERT_TRUE(acceptor.progress().ok());
  ASSERT_TRUE(acceptor.done());

  std::vector<std::byte> fresh;
  EXPECT_EQ(play(request, proof, &fresh).code(), Code::kUnauthenticated);
  EXPECT_FALSE(std::ranges::equal(fresh, challenge)) << "the challenge is new each time";
  // The acceptor's own answer is no proof either.
  EXPECT_EQ(play(request, std::span(challenge).last(32), nullptr).code(), Code::kUnauthenticated);

  // A recorded challenge does not convince a new connector.
  auto [e, f] = *Socket::pair();
  AttachConnector again(std::move(e), outgoing_, about(), soon());
  ASSERT_TRUE(f.send_all(challenge, soon()).ok());
  EXPECT_EQ(again.progress().code(), Code::kUnauthenticated);
}

TEST_F(Attach, RefusesARequestInWhichAnyByteChanged) {
  AttachRequest request = about();
  request.session = outgoing_.session;
  request.connector = 1;
  auto bytes = encode(request, outgoing_);
  std::vector<std::byte> none;
  for (size_t at = 0; at < bytes.size(); ++at) {
    auto changed = bytes;
    changed[at] ^= std::byte{0x10};
    EXPECT_FALSE(play(changed, none, nullptr).ok()) << at;
  }
}

TEST_F(Attach, RefusesKeysOfAnotherChannelTheOtherDirectionOrAClosedOne) {
  Pair stranger;
  AttachKeys theirs = *attach_keys(*stranger.client, Attaching::kOutgoing);
  AttachKeys mixed{outgoing_.session,           1, 0, std::move(theirs.connector_key), std::move(theirs.acceptor_key),
                   std::move(theirs.record_key)};
  AttachKeys reversed = *attach_keys(*pair_.server, Attaching::kOutgoing);
  for (AttachKeys* keys : {&mixed, &reversed, &theirs}) {
    if (keys == &theirs) theirs = *attach_keys(*stranger.client, Attaching::kOutgoing);
    auto [a, b] = *Socket::pair();
    AttachConnector connector(std::move(a), *keys, about(), soon());
    AttachAcceptor acceptor(std::move(b), sessions_, {}, soon());
    EXPECT_EQ(run(connector, acceptor).code(), Code::kUnauthenticated);
  }
  auto [a, b] = *Socket::pair();
  AttachConnector connector(std::move(a), outgoing_, about(), soon());
  AttachAcceptor acceptor(std::move(b), sessions_, {}, soon());
  ASSERT_TRUE(connector.progress().ok());
  ASSERT_TRUE(acceptor.progress().ok());
  ASSERT_TRUE(connector.progress().ok());
  sessions_.remove(outgoing_.session);
  EXPECT_EQ(acceptor.progress().code(), Code::kUnauthenticated) << "the channel went while its stream attached";
}

TEST_F(Attach, AsksWhetherAGenuineStreamIsWelcome) {
  auto [a, b] = *Socket::pair();
  AttachRequest old = about();
  old.epoch = 3;
  AttachConnector connector(std::move(a), outgoing_, old, soon());
  AttachAcceptor acceptor(
      std::move(b), sessions_,
      [](const AttachRequest& request) {
        return request.epoch == 4 ? Status() : Status(Code::kIncompatible, text("epoch ", request.epoch, " is over"));
      },
      soon());
  EXPECT_EQ(run(connector, acceptor).code(), Code::kIncompatible);
}

TEST_F(Attach, EndsAtItsDeadline) {
  auto [a, b] = *Socket::pair();
  AttachAcceptor acceptor(std::move(b), sessions_, {}, Deadline::after_seconds(0));
  EXPECT_EQ(acceptor.progress().code(), Code::kTimeout);
  AttachConnector connector(std::move(a), outgoing_, about(), Deadline::after_seconds(0));
  EXPECT_EQ(connector.progress().code(), Code::kTimeout);
}

TEST_F(Attach, RefusesProtectionThatItDoesNotKnow) {
  AttachRequest request = about();
  request.protection = static_cast<Protection>(kHighestProtection + 1);
  auto bytes = encode(request, outgoing_);
  EXPECT_EQ(decode_attach_request(bytes).status().code(), Code::kIncompatible);
}

}  // namespace
}  // namespace horo::net
