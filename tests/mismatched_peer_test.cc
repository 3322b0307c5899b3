// A peer that is almost right: another wire version, another epoch, another key, a rank that is taken. A real engine
// meets it, on either side of the connection; the message names both and says what to do.
#include <gtest/gtest.h>

#include <future>
#include <mutex>

#include "tests/job.h"

#include "horo/base/text.h"
#include "horo/group/knobs.h"
#include "horo/net/listener.h"
#include "horo/rendezvous/bootstrap.h"
#include "horo/rendezvous/knobs.h"
#include "horo/rendezvous/memory_store.h"

namespace horo::test {
namespace {

using KeyHandle = std::shared_ptr<const net::Key>;
using StoreHandle = std::shared_ptr<rendezvous::MemoryStore>;

KeyHandle random_key() { return std::make_shared<const net::Key>(std::move(*net::Key::random())); }

void expect_words(const std::string& words, std::initializer_list<const char*> expected) {
  for (const char* one : expected) EXPECT_NE(words.find(one), std::string::npos) << "'" << one << "' in: " << words;
}

/// A real engine, started on a thread of its own, and what it logs.
class Rank {
 public:
  Rank(int rank, const StoreHandle& store, const KeyHandle& key, const char* timeout = "2s") {
    auto config =
        Config::read({group::kKnobs, rendezvous::kKnobs},
                     Environment(Environment::Variables{
                         {"HORO_INTERFACE", "127.0.0.1"}, {"HORO_TRANSPORT", "tcp"}, {"HORO_TIMEOUT", timeout}}));
    HORO_CHECK(config.ok(), config.status().to_string());
    group::EngineOptions options{.rank = rank, .size = 2, .job = "test", .key = key, .config = *config};
    options.store = store;
    options.log_sink = [this](LogLevel, std::string_view line) {
      std::lock_guard lock(mutex_);
      log_ += text(line, "\n");
    };
    started_ = std::async(std::launch::async, [options = std::move(options)]() mutable {
      return group::Engine::start(std::move(options));
    });
  }
  Result<std::unique_ptr<group::Engine>> started() { return started_.get(); }
  bool ended() const { return started_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
  std::string log() {
    std::lock_guard lock(mutex_);
    return log_;
  }

 private:
  std::mutex mutex_;
  std::string log_;
  std::future<Result<std::unique_ptr<group::Engine>>> started_;
};

/// How the peer differs: in its Hello, or in the epoch that it proves too.
struct Odd {
  const char* what;
  uint16_t versions = 0;
  uint64_t epoch = 0;
  std::vector<const char*> words;
};

const Odd kVersion{.what = "version", .versions = 900, .words = {"wire", "900", "install the same version of horo"}};
const Odd kEpoch{.what = "epoch", .epoch = 7, .words = {"epoch 0", "epoch 7", "must join again"}};

net::ChannelOptions channel_of(int rank, const Odd& odd) {
  net::ChannelOptions options;
  options.hello = net::local_hello(static_cast<net::Member>(rank), odd.epoch);
  if (odd.versions > 0) options.hello.lowest_version = options.hello.highest_version = odd.versions;
  return options;
}

/// Publishes the card of a rank that is no engine, and gives the card of the other one.
Result<rendezvous::PeerCard> meet(int rank, rendezvous::Store& store, const net::Address& at) {
  rendezvous::PeerCard card = rendezvous::local_card(rank, 2, rendezvous::lonely_host_id());
  card.addresses = {at.to_string()};
  HORO_ASSIGN(auto cards, rendezvous::exchange_cards(store, "test", card, Deadline::after_seconds(10)));
  return cards[static_cast<size_t>(1 - rank)];
}

/// Connects to a rank of the job as rank 1; the outcome of the handshake.
Result<net::Channel> dial(const rendezvous::PeerCard& to, const net::Key& key, const Odd& odd) {
  HORO_ASSIGN(auto tls, net::Tls::create());
  HORO_ASSIGN(net::Address address, net::Address::parse(to.addresses.front()));
  HORO_ASSIGN(net::Socket socket, net::Socket::connect(address, Deadline::after_seconds(5)));
  const net::Identity identity{"test", net::Purpose::kControl, odd.epoch, 1, 0};
  HORO_ASSIGN(net::Channel channel, net::Channel::connect(tls, std::move(socket), key, identity, channel_of(1, odd)));
  HORO_TRY(channel.handshake(Deadline::after_seconds(5)));
  return channel;
}

class MismatchedPeer : public testing::TestWithParam<Odd> {};

TEST_P(MismatchedPeer, ThatAnEngineConnectsToIsRefusedNamingBoth) {
  const auto store = std::make_shared<rendezvous::MemoryStore>();
  const KeyHandle key = random_key();
  net::ListenerOptions options;
  options.job = "test";
  options.channel = channel_of(0, GetParam());
  auto listener = net::Listener::open(net::Address::loopback(), *net::Tls::create(), key, options);
  ASSERT_TRUE(listener.ok()) << listener.status();
  Rank real(1, store, key, "10s");
  ASSERT_TRUE(meet(0, *store, listener->address()).ok());
  const Deadline limit = Deadline::after_seconds(10);
  while (!real.ended()) {
    ASSERT_FALSE(limit.expired()) << "the engine hangs";
    std::array<net::PollItem, 1> items = {net::PollItem{listener->fd()}};
    ASSERT_TRUE(net::poll_many(items, Deadline::after_seconds(0.05)).ok());
    ASSERT_TRUE(listener->step().ok());
  }
  const Status status = real.started().status();
  EXPECT_EQ(status.code(), Code::kIncompatible) << status;
  expect_words(status.message(), {"rank 1 cannot reach rank 0", "rank 0 (", "rank 1 (", "pid"});
  for (const char* words : GetParam().words) expect_words(status.message(), {words});
}

TEST_P(MismatchedPeer, ThatConnectsToAnEngineIsRefusedAndBothAreTold) {
  const auto store = std::make_shared<rendezvous::MemoryStore>();
  const KeyHandle key = random_key();
  Rank real(0, store, key);
  auto card = meet(1, *store, net::Address::loopback());
  ASSERT_TRUE(card.ok()) << card.status();
  const Status refused = dial(*card, *key, GetParam()).status();
  EXPECT_EQ(refused.code(), Code::kIncompatible) << refused;
  expect_words(refused.message(), {"refused rank 1", "rank 0 ("});
  const Status status = real.started().status();
  EXPECT_EQ(status.code(), Code::kTimeout) << status;
  expect_words(status.message(), {"rank 1 did not connect to rank 0", "HORO_TIMEOUT"});
  expect_words(real.log(), {"refused a connection", "rank 0 (", "rank 1 ("});
  for (const char* words : GetParam().words) {
    expect_words(refused.message(), {words});
    expect_words(real.log(), {words});
  }
}

INSTANTIATE_TEST_SUITE_P(Odd, MismatchedPeer, testing::Values(kVersion, kEpoch),
                         [](const auto& param) { return std::string(param.param.what); });

TEST(WrongKey, BetweenTwoEnginesIsNamedOnBothSides) {
  const auto store = std::make_shared<rendezvous::MemoryStore>();
  Rank first(0, store, random_key()), second(1, store, random_key());
  const Status connector = second.started().status(), acceptor = first.started().status();
  EXPECT_EQ(connector.code(), Code::kUnauthenticated) << connector;
  expect_words(connector.message(), {"rank 1 cannot reach rank 0", "same key"});
  EXPECT_EQ(acceptor.code(), Code::kTimeout) << acceptor;
  expect_words(acceptor.message(), {"rank 1 did not connect to rank 0"});
  expect_words(first.log(), {"refused a connection"});
}

bool sums(group::Engine& engine) {
  collective::Operation operation;
  operation.kind = collective::Kind::kAllreduce;
  operation.dtype = DType::kU64;
  operation.count = 1000;
  std::vector<uint64_t> values(1000, 1);
  auto* bytes = reinterpret_cast<std::byte*>(values.data());
  return engine.world().run(operation, bytes, bytes, Deadline::after_seconds(10)).ok() &&
         values == std::vector<uint64_t>(1000, 2);
}

TEST(RankTakenTwice, AtTheEnginesDoorIsRefusedThoughItHoldsTheKey) {
  const auto store = std::make_shared<rendezvous::MemoryStore>();
  const KeyHandle key = random_key();
  Rank first(0, store, key, "10s"), second(1, store, key, "10s");
  auto zero = first.started(), one = second.started();
  ASSERT_TRUE(zero.ok() && one.ok()) << zero.status() << one.status();
  auto cards = store->list("test/card/", Deadline::after_seconds(1));
  ASSERT_TRUE(cards.ok() && cards->size() == 2u);
  auto card = rendezvous::decode_card(cards->begin()->second);
  ASSERT_TRUE(card.ok()) << card.status();
  for (int turn = 0; turn < 3; ++turn) {
    // It proves the key and speaks the language; only then can it be told from the holder.
    auto channel = dial(*card, *key, {});
    ASSERT_TRUE(channel.ok()) << channel.status();
    const auto told = channel->receive(Deadline::after_seconds(5));
    EXPECT_FALSE(told.ok()) << "the second rank 1 was let in";
    EXPECT_NE(told.status().code(), Code::kTimeout) << "the second rank 1 was kept waiting";
  }
  auto other = std::async(std::launch::async, [&] { return sums(**one); });
  EXPECT_TRUE(sums(**zero)) << "its holder was disturbed";
  EXPECT_TRUE(other.get());
  EXPECT_EQ((*zero)->members(), (std::vector<int>{0, 1}));
  EXPECT_EQ((*zero)->epoch(), 0u);
  expect_words(first.log(), {"refused a peer", "rank 1 is connected already", "a second process claims its place"});
}

}  // namespace
}  // namespace horo::test
