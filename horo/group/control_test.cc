// Two control threads in one process: which data streams they let in.
#include "horo/group/control.h"

#include <gtest/gtest.h>

#include <thread>

#include "horo/group/control_testing.h"

namespace horo::group {
namespace {

// What the kernel of the other host says is certain. What comes over a wire that damages or loses bytes is not: the
// other rank may live, and may think the same of this one.
TEST(ControlLoss, AnEndWithoutAGoodbyeIsADeathAndDamagedBytesAreNot) {
  const auto key = std::make_shared<const net::Key>(net::Key::random().value());
  for (const bool damaged : {false, true}) {
    Rank zero(0, key, std::chrono::seconds(20)), one(1, key, std::chrono::seconds(20));
    auto link = connect_link(one.self, one.address, zero.address, soon());
    ASSERT_TRUE(link.ok()) << link.status();
    ASSERT_TRUE(zero.control->wait_for_links(soon()).ok());
    const std::vector<std::byte> bytes(64, std::byte{0x5a});
    if (damaged) {
      EXPECT_TRUE(link->channel.socket().send(bytes).is_moved());
    } else {
      link->channel.socket().shutdown_send();
    }
    EXPECT_EQ(zero.control->members_without({1}, soon()), std::vector<int>{0});
    const std::vector<rendezvous::Loss> losses = zero.control->losses();
    ASSERT_EQ(losses.size(), 1u);
    EXPECT_EQ(losses[0].reason, damaged ? rendezvous::LossReason::kLink : rendezvous::LossReason::kKilled);
  }
}

TEST(ControlEnd, WhoComesAfterwardsIsToldAndDoesNotWait) {
  const auto key = std::make_shared<const net::Key>(net::Key::random().value());
  Rank zero(0, key, std::chrono::seconds(20)), one(1, key, std::chrono::seconds(20));
  auto link = connect_link(one.self, one.address, zero.address, soon());
  ASSERT_TRUE(link.ok()) << link.status();
  one.control->stop();
  EXPECT_EQ(one.control->add_link(std::move(*link)).code(), Code::kStopped);
}

class StreamsOfGroups : public ::testing::Test {
 protected:
  explicit StreamsOfGroups(Duration timeout = std::chrono::seconds(20))
      : key_(std::make_shared<const net::Key>(net::Key::random().value())),
        zero_(0, key_, timeout),
        one_(1, key_, timeout) {
    auto link = connect_link(one_.self, one_.address, zero_.address, soon());
    EXPECT_TRUE(link.ok()) << link.status();
    EXPECT_TRUE(one_.control->add_link(std::move(*link)).ok());
    EXPECT_TRUE(zero_.control->wait_for_links(soon()).ok());
  }

  GroupTerms agree() {
    GroupTerms terms;
    GroupOffer offer;
    offer.needs_wires = true;
    std::thread other([&] { EXPECT_TRUE(one_.control->agree_on_group({0, 1}, offer, soon()).ok()); });
    auto agreed = zero_.control->agree_on_group({0, 1}, offer, soon());
    EXPECT_TRUE(agreed.ok()) << agreed.status();
    if (agreed.ok()) terms = *agreed;
    other.join();
    return terms;
  }

  net::Socket attach(uint64_t group, uint64_t epoch, uint32_t stream) {
    net::AttachRequest about;
    about.group = static_cast<uint32_t>(group);
    about.epoch = epoch;
    about.stream = stream;
    auto attached = net::attach(zero_.address.tcp, *one_.control->link(0)->outgoing, about, soon());
    EXPECT_TRUE(attached.ok()) << attached.status();
    return std::move(attached->socket);
  }

  /// Whether rank 0 closes it. Waits for that.
  static bool is_closed(const net::Socket& socket) {
    std::array<std::byte, 1> nothing;
    EXPECT_TRUE(net::wait_ready(socket.fd(), net::Interest::kRead, soon(), "a refused stream").ok());
    return !socket.receive(nothing).is_moved();
  }

  std::shared_ptr<const net::Key> key_;
  Rank zero_, one_;
};

struct ImpatientStreamsOfGroups : StreamsOfGroups {
  ImpatientStreamsOfGroups() : StreamsOfGroups(std::chrono::milliseconds(300)) {}
};

TEST_F(StreamsOfGroups, AreTakenOfItsEpochAloneAndOnceEach) {
  const GroupTerms terms = agree();
  EXPECT_TRUE(is_closed(attach(terms.id, terms.epoch + 1, 0))) << "another epoch";
  net::Socket good = attach(terms.id, terms.epoch, 0);
  auto taken = zero_.control->take_stream(terms.id, {0, 1}, 1, 0, soon());
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_TRUE(is_closed(attach(terms.id, terms.epoch, 0))) << "a second one for the same place";
  zero_.control->close_streams(terms.id);
  EXPECT_TRUE(is_closed(attach(terms.id, terms.epoch, 1))) << "the group has what it needs";
  std::array<std::byte, 1> byte{};
  ASSERT_TRUE(good.send_all(byte, soon()).ok());
  EXPECT_TRUE(taken->socket.receive_all(byte, soon()).ok()) << "the stream that was taken is not disturbed";
}

TEST_F(StreamsOfGroups, ThatComeBeforeTheGroupIsKnownWaitForIt) {
  // The first group that rank 0 makes.
  const uint64_t id = 1;
  net::Socket early = attach(id, 0, 0), wrong = attach(id, 7, 1);
  const GroupTerms terms = agree();
  ASSERT_EQ(terms.id, id);
  EXPECT_TRUE(zero_.control->take_stream(id, {0, 1}, 1, 0, soon()).ok());
  EXPECT_TRUE(is_closed(wrong));
}

TEST_F(ImpatientStreamsOfGroups, ThatNeverComeAreClosed) { EXPECT_TRUE(is_closed(attach(99, 0, 0))); }

}  // namespace
}  // namespace horo::group
