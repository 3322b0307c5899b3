#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "horo/base/text.h"
#include "horo/net/socket.h"
#include "horo/net/testing.h"
#include "horo/rendezvous/memory_store.h"
#include "horo/rendezvous/store_table.h"
#include "horo/rendezvous/tcp_store.h"

namespace horo::rendezvous {
namespace {

using net::testing::bytes_of;
using net::testing::soon;

Deadline at_once() { return Deadline::after(std::chrono::milliseconds(30)); }
std::string text_of(const Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
std::shared_ptr<const net::Key> random_key() { return std::make_shared<const net::Key>(*net::Key::random()); }

/// Makes one store that any number of ranks can open.
class Place {
 public:
  virtual ~Place() = default;
  virtual std::shared_ptr<Store> open() = 0;
};

class MemoryPlace : public Place {
  std::shared_ptr<Store> open() override { return store_; }
  std::shared_ptr<Store> store_ = std::make_shared<MemoryStore>();
};

class TcpPlace : public Place {
 public:
  std::shared_ptr<Store> open() override {
    auto store = TcpStore::connect(server_->address(), options_, soon());
    EXPECT_TRUE(store.ok()) << store.status();
    return std::move(*store);
  }
  TcpStoreOptions options_{"job", random_key(), nullptr};
  std::unique_ptr<TcpStoreServer> server_ = std::move(*TcpStoreServer::start(net::Address::loopback(), options_));
};

class StoreTest : public testing::TestWithParam<bool> {
 protected:
  StoreTest() {
    if (GetParam()) place_ = std::make_unique<TcpPlace>();
    if (!place_) place_ = std::make_unique<MemoryPlace>();
  }
  std::unique_ptr<Place> place_;
};

TEST(TcpStoreWithoutAKey, IsAnErrorOfTheCall) {
  const TcpStoreOptions keyless{"job", nullptr, nullptr};
  const Status served = TcpStoreServer::start(net::Address::loopback(), keyless).status();
  EXPECT_EQ(served.code(), Code::kInvalidArgument) << served;
  EXPECT_NE(served.message().find("Key::none()"), std::string::npos) << served;
  const Status joined = TcpStore::connect(net::Address::loopback(), keyless, soon()).status();
  EXPECT_EQ(joined.code(), Code::kInvalidArgument) << joined;
  EXPECT_NE(joined.message().find("Key::none()"), std::string::npos) << joined;
}

TEST_P(StoreTest, WithdrawTakesAwayWhatIsOnesOwnAndWaitersGoOnWaiting) {
  auto store = place_->open();
  std::thread waiter([&] {
    auto all = place_->open()->wait_all("w/", 2, soon());
    ASSERT_TRUE(all.ok()) << all.status();
    EXPECT_EQ(all->count("w/b"), 0u) << "it had been taken away";
  });
  ASSERT_TRUE(store->set("w/b", bytes_of("one"), soon()).ok());
  ASSERT_TRUE(store->withdraw("w/b", bytes_of("another's"), soon()).ok());
  EXPECT_EQ(text_of(*store->get("w/b", soon())), "one");
  ASSERT_TRUE(store->withdraw("w/b", bytes_of("one"), soon()).ok());
  ASSERT_TRUE(store->withdraw("never/there", bytes_of("one"), soon()).ok());
  EXPECT_EQ(store->get("w/b", at_once()).status().code(), Code::kTimeout);
  ASSERT_TRUE(store->set("w/c", bytes_of("two"), soon()).ok());
  ASSERT_TRUE(store->set("w/d", bytes_of("three"), soon()).ok());
  waiter.join();
}

TEST_P(StoreTest, KeepsValuesAndReplacesThem) {
  auto store = place_->open();
  ASSERT_TRUE(store->set("a", bytes_of("one"), soon()).ok());
  EXPECT_EQ(text_of(*store->get("a", soon())), "one");
  ASSERT_TRUE(store->set("a", {}, soon()).ok());
  EXPECT_EQ(text_of(*place_->open()->get("a", soon())), "");
}

TEST_P(StoreTest, GetWaitsUntilSomebodySetsTheKey) {
  auto reader = place_->open();
  auto writer = place_->open();
  std::thread thread([&] {
    auto value = reader->get("late", soon());
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_EQ(text_of(*value), "here");
    EXPECT_TRUE(reader->set("seen", {}, soon()).ok());
  });
  EXPECT_TRUE(writer->set("other", {}, soon()).ok());
  EXPECT_TRUE(writer->set("late", bytes_of("here"), soon()).ok());
  EXPECT_TRUE(writer->get("seen", soon()).ok());
  thread.join();
}

TEST_P(StoreTest, ADeadlineEndsAWaitAndTheStoreStaysUsable) {
  auto store = place_->open();
  auto missing = store->get("never", at_once());
  EXPECT_EQ(missing.status().code(), Code::kTimeout);
  EXPECT_NE(missing.status().message().find("never"), std::string::npos);
  EXPECT_EQ(store->wait_all("never", 1, at_once()).status().code(), Code::kTimeout);
  ASSERT_TRUE(store->set("never", bytes_of("after all"), soon()).ok());
  EXPECT_EQ(text_of(*store->get("never", soon())), "after all");
}

TEST_P(StoreTest, TheFirstClaimWins) {
  auto store = place_->open();
  EXPECT_EQ(text_of(*store->claim("k", bytes_of("first"), soon())), "first");
  EXPECT_EQ(text_of(*place_->open()->claim("k", bytes_of("second"), soon())), "first");
}

TEST_P(StoreTest, CountsAndRefusesToCountWhatIsNoNumber) {
  auto store = place_->open();
  EXPECT_EQ(*store->add("n", 5, soon()), 5);
  EXPECT_EQ(*store->add("n", -7, soon()), -2);
  ASSERT_TRUE(store->set("word", bytes_of("abc"), soon()).ok());
  EXPECT_EQ(store->add("word", 1, soon()).status().code(), Code::kInvalidArgument);
}

TEST_P(StoreTest, ListsByPrefix) {
  auto store = place_->open();
  for (const char* key : {"a/1", "a/2", "b/1", "a"}) ASSERT_TRUE(store->set(key, bytes_of(key), soon()).ok());
  auto found = store->list("a/", soon());
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->size(), 2u);
  EXPECT_EQ(text_of(found->at("a/2")), "a/2");
  EXPECT_EQ(store->list("", soon())->size(), 4u);
}

TEST_P(StoreTest, ManyRanksMeet) {
  constexpr int kRanks = 12;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([this, rank] {
      auto store = place_->open();
      ASSERT_TRUE(store->set(text("card/", rank), bytes_of(text(rank)), soon()).ok());
      auto all = store->wait_all("card/", kRanks, soon());
      ASSERT_TRUE(all.ok()) << all.status();
      EXPECT_EQ(all->size(), static_cast<size_t>(kRanks));
      EXPECT_TRUE(store->add("done", 1, soon()).ok());
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(*place_->open()->add("done", 0, soon()), kRanks);
}

TEST_P(StoreTest, AMeetingEndsForAllOrTellsWhoHoldsTheName) {
  auto store = place_->open();
  auto late = place_->open();
  std::thread first([&] {
    auto meeting = store->meet("m/", "a", bytes_of("1"), 2, soon());
    ASSERT_TRUE(meeting.ok()) << meeting.status();
    EXPECT_EQ(text_of(meeting->held), "1");
    EXPECT_EQ(meeting->entries.size(), 2u);
  });
  ASSERT_TRUE(late->get("m/a", soon()).ok());
  auto refused = late->meet("m/", "a", bytes_of("2"), 2, soon());
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_EQ(text_of(refused->held), "1");
  EXPECT_TRUE(refused->entries.empty());
  EXPECT_EQ(late->meet("m/", "b", bytes_of("3"), 2, soon())->entries.size(), 2u);
  first.join();
}

TEST_P(StoreTest, RefusesWhatIsTooLarge) {
  auto store = place_->open();
  std::string long_key(StoreLimits::kMostKey + 1, 'k');
  EXPECT_EQ(store->set(long_key, {}, soon()).code(), Code::kInvalidArgument);
  std::vector<std::byte> long_value(StoreLimits::kMostValue + 1);
  EXPECT_EQ(store->set("k", long_value, soon()).code(), Code::kInvalidArgument);
  long_value.pop_back();
  EXPECT_TRUE(store->set("k", long_value, soon()).ok());
}

INSTANTIATE_TEST_SUITE_P(Each, StoreTest, testing::Bool(),
                         [](const auto& instance) { return instance.param ? "tcp" : "memory"; });

TEST(TcpStore, RefusesAWrongKeyAndAnotherJob) {
  TcpPlace place;
  TcpStoreOptions wrong_key{"job", random_key(), nullptr};
  auto refused = TcpStore::connect(place.server_->address(), wrong_key, soon());
  EXPECT_EQ(refused.status().code(), Code::kUnauthenticated) << refused.status();
  TcpStoreOptions other_job{"other", place.options_.key, nullptr};
  EXPECT_FALSE(TcpStore::connect(place.server_->address(), other_job, soon()).ok());
  EXPECT_TRUE(place.open()->set("still", bytes_of("here"), soon()).ok());
}

TEST(TcpStore, SurvivesGarbageAtItsPort) {
  auto random = net::testing::seeded();
  TcpPlace place;
  auto member = place.open();
  for (int i = 0; i < 200; ++i) {
    auto socket = net::Socket::connect(place.server_->address(), soon());
    ASSERT_TRUE(socket.ok()) << socket.status();
    // The server may have closed already; what matters is what it does afterwards.
    (void)socket->send(net::testing::random_bytes(random, 1 + random() % 2000));
  }
  EXPECT_TRUE(member->set("still", bytes_of("here"), soon()).ok());
  EXPECT_EQ(text_of(*place.open()->get("still", soon())), "here");
}

TEST(TcpStore, ThreadsTakeTurnsOnOneConnection) {
  TcpPlace place;
  auto store = place.open();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int call = 0; call < 50; ++call) EXPECT_TRUE(store->add("n", 1, soon()).ok());
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(*store->add("n", 0, soon()), 200);
}

TEST(TcpStore, TellsClientsWhenItIsGone) {
  TcpPlace place;
  auto store = place.open();
  ASSERT_TRUE(store->set("a", {}, soon()).ok());
  place.server_.reset();
  EXPECT_EQ(store->get("b", soon()).status().code(), Code::kPeerLost);
}

TEST(TcpStore, AWaitingClientLearnsOfTheEndAtOnce) {
  TcpPlace place;
  auto store = place.open();
  auto other = place.open();
  std::thread waiter([&] {
    EXPECT_TRUE(store->set("waiting", {}, soon()).ok());
    EXPECT_EQ(store->get("never", Deadline::after_seconds(60)).status().code(), Code::kPeerLost);
  });
  ASSERT_TRUE(other->get("waiting", soon()).ok());
  place.server_.reset();
  waiter.join();
}

TEST(TcpStore, IsWaitedForWhenItComesLater) {
  // The address is free again after the probe, and most likely still when the server comes.
  TcpStoreOptions options{"job", random_key(), nullptr};
  net::Address address = (*TcpStoreServer::start(net::Address::loopback(), options))->address();
  std::thread early([&] {
    auto store = TcpStore::connect(address, options, soon());
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_TRUE((*store)->set("early", {}, soon()).ok());
  });
  auto server = TcpStoreServer::start(address, options);
  ASSERT_TRUE(server.ok()) << server.status();
  auto store = TcpStore::connect(address, options, soon());
  EXPECT_TRUE((*store)->get("early", soon()).ok());
  early.join();
}

TEST(TcpStore, SaysWhereNobodyListens) {
  TcpStoreOptions options{"job", random_key(), nullptr};
  net::Address address = (*TcpStoreServer::start(net::Address::loopback(), options))->address();
  auto store = TcpStore::connect(address, options, Deadline::after(std::chrono::milliseconds(100)));
  EXPECT_EQ(store.status().code(), Code::kTimeout);
  EXPECT_NE(store.status().message().find(address.to_string()), std::string::npos) << store.status();
}

TEST(TcpStore, IsFoundAtWhicheverOfSeveralAddressesAnswers) {
  TcpStoreOptions options{"job", random_key(), nullptr};
  auto server = TcpStoreServer::start(net::Address::loopback(), options);
  ASSERT_TRUE(server.ok()) << server.status();
  const net::Address free = (*TcpStoreServer::start(net::Address::loopback(), options))->address();
  const net::Address also_free = *net::Address::parse(text("[::1]:", free.port()));
  const std::vector<net::Address> addresses = {also_free, free, (*server)->address()};
  auto store = TcpStore::connect(addresses, options, soon());
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_TRUE((*store)->set("found", {}, soon()).ok());

  auto none = TcpStore::connect(std::span(addresses).first(2), options, Deadline::after(std::chrono::milliseconds(50)));
  EXPECT_EQ(none.status().code(), Code::kTimeout);
  for (const net::Address& tried : {free, also_free}) {
    EXPECT_NE(none.status().message().find(tried.to_string()), std::string::npos) << none.status();
  }
}

TEST(TcpStore, ListensBeyondThisMachineOnlyWithAKey) {
  TcpStoreOptions options{"job", std::make_shared<const net::Key>(*net::Key::none()), nullptr};
  auto server = TcpStoreServer::start(*net::Address::parse("0.0.0.0:0"), options);
  EXPECT_EQ(server.status().code(), Code::kInvalidArgument) << server.status();
  EXPECT_TRUE(TcpStoreServer::start(net::Address::loopback(), options).ok());
}

TEST(StoreTable, IsFullAtItsLimit) {
  StoreTable table;
  for (size_t i = 0; i < StoreLimits::kMostEntries; ++i) {
    ASSERT_TRUE(table.ask(1, {StoreVerb::kSet, text(i), {}, {}, 0, 0})->status.ok());
  }
  EXPECT_EQ(table.ask(1, {StoreVerb::kSet, "x", {}, {}, 0, 0})->status.code(), Code::kUnavailable);
  EXPECT_TRUE(table.ask(1, {StoreVerb::kSet, "7", {}, {}, 0, 0})->status.ok()) << "an old key can change";
}

TEST(StoreTable, ForgetsWhoGaveUp) {
  StoreTable table;
  EXPECT_FALSE(table.ask(1, {StoreVerb::kGet, "a", {}, {}, 0, 0}));
  EXPECT_FALSE(table.ask(2, {StoreVerb::kWaitAll, {}, "a", {}, 0, 2}));
  table.forget(1);
  table.ask(3, {StoreVerb::kSet, "a", {}, {}, 0, 0});
  EXPECT_TRUE(table.take_answers().empty());
  table.ask(3, {StoreVerb::kSet, "a2", {}, {}, 0, 0});
  auto answers = table.take_answers();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].first, 2u);
  EXPECT_EQ(answers[0].second.entries.size(), 2u);
}

TEST(StoreRequest, ComesBackAsItWasSentAndIsRefusedWhenTruncated) {
  StoreRequest request{StoreVerb::kAdd, "key", "pre", {std::byte{1}}, -4, 9};
  Bytes bytes = encode(request);
  EXPECT_EQ(*decode_store_request(bytes), request);
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(decode_store_request(std::span(bytes).first(length)).ok());
  }
  StoreReply reply{Status(Code::kUnavailable, "full"), {std::byte{2}}, -1, {{"a", {std::byte{3}}}}};
  bytes = encode(reply);
  auto decoded = decode_store_reply(bytes);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->status.to_string(), reply.status.to_string());
  EXPECT_EQ(decoded->entries, reply.entries);
  EXPECT_EQ(decoded->sum, -1);
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(decode_store_reply(std::span(bytes).first(length)).ok());
  }
}

}  // namespace
}  // namespace horo::rendezvous
