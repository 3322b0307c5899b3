#include "horo/rendezvous/bootstrap.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "horo/base/text.h"
#include "horo/net/testing.h"
#include "horo/rendezvous/knobs.h"
#include "horo/rendezvous/memory_store.h"

namespace horo::rendezvous {
namespace {

using net::testing::soon;

Config config_of(const Environment::Variables& variables) { return *Config::read({kKnobs}, Environment(variables)); }
PeerCard card_of(int rank, int size) {
  PeerCard card = local_card(rank, size, HostId{"test"});
  card.addresses = {"somewhere"};
  return card;
}
bool has(const Status& status, std::string_view words) { return status.message().find(words) != std::string::npos; }

TEST(Place, IsAJobOfOneWhenNothingIsSet) {
  auto place = find_place(config_of({}));
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(place->rank, 0);
  EXPECT_EQ(place->size, 1);
}

TEST(Place, IsReadFromTheEnvironmentWithItsOldNames) {
  auto place = find_place(config_of(
      {{"HOROVOD_RANK", "2"}, {"HORO_SIZE", "4"}, {"HORO_STORE", "127.0.0.1:1"}, {"HORO_JOB_ID", "this one"}}));
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(place->rank, 2);
  EXPECT_EQ(place->size, 4);
  EXPECT_EQ(place->store, "127.0.0.1:1");
  EXPECT_EQ(place->job, "this one");
}

TEST(Place, NamesWhatIsMissingOrContradicts) {
  EXPECT_TRUE(has(find_place(config_of({{"HORO_RANK", "1"}})).status(), "HORO_SIZE"));
  EXPECT_TRUE(has(find_place(config_of({{"HORO_SIZE", "2"}})).status(), "HORO_RANK"));
  EXPECT_TRUE(has(find_place(config_of({{"HORO_SIZE", "2"}, {"HORO_RANK", "0"}})).status(), "HORO_STORE"));
  auto beyond = find_place(config_of({{"HORO_SIZE", "2"}, {"HORO_RANK", "2"}, {"HORO_STORE", "127.0.0.1:1"}}));
  EXPECT_EQ(beyond.status().code(), Code::kInvalidArgument);
}

TEST(HostId, IsEqualForProcessesOfThisMachineAndNamespace) {
  auto once = find_host_id(System(), "");
  ASSERT_TRUE(once.ok()) << once.status();
  EXPECT_EQ(*once, *find_host_id(System(), ""));
  EXPECT_EQ(find_host_id(System(), "a")->text, "named:a");
  EXPECT_NE(lonely_host_id(), lonely_host_id());
  EXPECT_EQ(find_host_id(System("/nonexistent"), "").status().code(), Code::kNotFound);
}

TEST(Card, ComesBackAsItWasSentAndIsRefusedWhenDamaged) {
  PeerCard card = card_of(3, 4);
  card.addresses = {"10.0.0.1:5", "unix:@horo"};
  auto bytes = encode(card);
  auto decoded = decode_card(bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, card);
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_EQ(decode_card(std::span(bytes).first(length)).status().code(), Code::kCorrupt);
  }
  card.rank = 4;
  EXPECT_FALSE(decode_card(encode(card)).ok());
}

TEST(Meeting, GivesEveryoneAllCardsInOrder) {
  MemoryStore store;
  constexpr int kRanks = 9;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&store, rank] {
      PeerCard mine = card_of(rank, kRanks);
      auto cards = exchange_cards(store, "job", mine, soon());
      ASSERT_TRUE(cards.ok()) << cards.status();
      ASSERT_EQ(cards->size(), static_cast<size_t>(kRanks));
      for (int other = 0; other < kRanks; ++other) EXPECT_EQ((*cards)[static_cast<size_t>(other)].rank, other);
      EXPECT_EQ((*cards)[static_cast<size_t>(rank)], mine);
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(Meeting, RefusesASecondClaimantOfARankAndLeavesTheHolderAlone) {
  MemoryStore store;
  PeerCard holder = card_of(0, 2);
  holder.pid = 1111;
  std::thread first([&] {
    auto cards = exchange_cards(store, "job", holder, soon());
    ASSERT_TRUE(cards.ok()) << cards.status();
    EXPECT_EQ((*cards)[0].incarnation, holder.incarnation);
  });
  ASSERT_TRUE(store.wait_all("job/card/", 1, soon()).ok());
  PeerCard thief = card_of(0, 2);
  auto refused = exchange_cards(store, "job", thief, soon());
  EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(has(refused.status(), "pid 1111")) << refused.status();
  EXPECT_TRUE(has(refused.status(), text("pid ", getpid()))) << refused.status();
  EXPECT_TRUE(exchange_cards(store, "job", card_of(1, 2), soon()).ok());
  first.join();
}

TEST(Meeting, NamesBothSizesWhenTheyDiffer) {
  MemoryStore store;
  std::thread first([&] { EXPECT_TRUE(exchange_cards(store, "job", card_of(0, 2), soon()).ok()); });
  ASSERT_TRUE(store.wait_all("job/card/", 1, soon()).ok());
  auto refused = exchange_cards(store, "job", card_of(2, 3), soon());
  EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(has(refused.status(), "size is 3") && has(refused.status(), "but 2")) << refused.status();
  EXPECT_TRUE(exchange_cards(store, "job", card_of(1, 2), soon()).ok());
  first.join();
}

TEST(Meeting, NamesTheRanksThatDidNotCome) {
  MemoryStore store;
  Deadline short_time = Deadline::after(std::chrono::milliseconds(50));
  std::thread other([&] { EXPECT_FALSE(exchange_cards(store, "job", card_of(2, 5), short_time).ok()); });
  auto missing = exchange_cards(store, "job", card_of(0, 5), short_time);
  other.join();
  EXPECT_EQ(missing.status().code(), Code::kTimeout);
  EXPECT_TRUE(has(missing.status(), "ranks 1, 3, 4 of 5")) << missing.status();
  EXPECT_TRUE(has(missing.status(), "HORO_STORE")) << missing.status();
}

TEST(Meeting, WhoDidNotGetInComesAgainWhileOthersWait) {
  MemoryStore store;
  std::thread patient([&] {
    auto cards = exchange_cards(store, "job", card_of(1, 3), soon());
    ASSERT_TRUE(cards.ok()) << cards.status();
    EXPECT_EQ((*cards)[0].addresses, std::vector<std::string>{"again"}) << "a card that was withdrawn is not given out";
  });
  ASSERT_TRUE(store.wait_all("job/card/", 1, soon()).ok());
  const PeerCard hasty = card_of(0, 3);
  EXPECT_EQ(exchange_cards(store, "job", hasty, Deadline::after(std::chrono::milliseconds(50))).status().code(),
            Code::kTimeout);
  // Somebody else's withdrawal changes nothing.
  withdraw_card(store, "job", card_of(0, 3));
  EXPECT_EQ(store.list("job/card/", soon())->size(), 2u);
  withdraw_card(store, "job", hasty);
  EXPECT_EQ(store.list("job/card/", soon())->size(), 1u);
  std::thread last([&] { EXPECT_TRUE(exchange_cards(store, "job", card_of(2, 3), soon()).ok()); });
  ASSERT_TRUE(store.wait_all("job/card/", 2, soon()).ok());
  PeerCard again = card_of(0, 3);
  again.addresses = {"again"};
  EXPECT_TRUE(exchange_cards(store, "job", again, soon()).ok());
  patient.join();
  last.join();
}

TEST(Meeting, EndsForAllOnceEverybodyElseIsThereWhenSomeHaveDeclined) {
  MemoryStore store;
  const auto came = [&](int rank) { return exchange_cards(store, "job", card_of(rank, 4), soon()).status(); };
  Status early;
  std::thread waiting([&] { early = came(0); });
  ASSERT_TRUE(store.wait_all("job/card/", 1, soon()).ok());
  EXPECT_TRUE(decline(store, "job", 1, 4, soon()).ok());
  EXPECT_TRUE(decline(store, "job", 3, 4, soon()).ok());
  const Status late = came(2);
  waiting.join();
  for (const Status& status : {early, late}) {
    EXPECT_EQ(status.code(), Code::kPeerLost) << status;
    EXPECT_EQ(status.lost(), (std::vector<int>{1, 3})) << status;
    EXPECT_TRUE(has(status, "ranks 1, 3 of 4 ended without joining job 'job'")) << status;
  }
}

TEST(Meeting, WhoHasComeCannotBeDeclined) {
  MemoryStore store;
  std::thread first([&] { EXPECT_TRUE(exchange_cards(store, "job", card_of(0, 2), soon()).ok()); });
  ASSERT_TRUE(store.wait_all("job/card/", 1, soon()).ok());
  EXPECT_TRUE(decline(store, "job", 0, 2, soon()).ok());
  EXPECT_TRUE(exchange_cards(store, "job", card_of(1, 2), soon()).ok());
  first.join();
}

TEST(Meeting, AWrongSizeIsForgottenWithItsCard) {
  MemoryStore store;
  const PeerCard wrong = card_of(0, 3);
  EXPECT_FALSE(exchange_cards(store, "job", wrong, Deadline::after(std::chrono::milliseconds(20))).ok());
  EXPECT_EQ(exchange_cards(store, "job", card_of(0, 1), soon()).status().code(), Code::kInvalidArgument);
  withdraw_card(store, "job", wrong);
  EXPECT_TRUE(exchange_cards(store, "job", card_of(0, 1), soon()).ok());
}

TEST(Meeting, WorksOverTcpWithRankZeroServing) {
  auto key = std::make_shared<const net::Key>(*net::Key::random());
  // A port that was free a moment ago.
  std::string at = (*TcpStoreServer::start(net::Address::loopback(), {"job", key, nullptr}))->address().to_string();
  constexpr int kRanks = 4;
  std::vector<std::thread> threads;
  for (int rank = kRanks - 1; rank >= 0; --rank) {
    threads.emplace_back([&, rank] {
      auto access = open_store({rank, kRanks, "job", at}, key, nullptr, soon());
      ASSERT_TRUE(access.ok()) << access.status();
      EXPECT_EQ(access->server != nullptr, rank == 0);
      auto cards = exchange_cards(*access->store, "job", card_of(rank, kRanks), soon());
      ASSERT_TRUE(cards.ok()) << cards.status();
      EXPECT_EQ(cards->size(), static_cast<size_t>(kRanks));
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(Meeting, RankZeroServesOnceAPortIsFreeThatWasTakenForAMoment) {
  auto key = std::make_shared<const net::Key>(*net::Key::random());
  // As a connection of another program has it: nobody answers there.
  net::testing::HeldPort port;
  const std::string at = port.address();
  std::thread first([&] {
    const auto access = open_store({0, 2, "job", at}, key, nullptr, soon());
    ASSERT_TRUE(access.ok()) << access.status();
    EXPECT_NE(access->server, nullptr);
  });
  const auto none = open_store({1, 2, "job", at}, key, nullptr, Deadline::after_seconds(0.3));
  EXPECT_EQ(none.status().code(), Code::kTimeout) << none.status();
  port.release();
  first.join();
}

TEST(StoreElsewhere, IsNotServedByRankZeroAndNotItsMistake) {
  auto key = std::make_shared<const net::Key>(*net::Key::random());
  // An address that is nobody's (RFC 5737): rank 0 can only wait for whoever serves there.
  const auto access = open_store({0, 2, "job", "192.0.2.1:9"}, key, nullptr, Deadline::after_seconds(0.2));
  ASSERT_FALSE(access.ok());
  EXPECT_NE(access.status().code(), Code::kInvalidArgument) << access.status();
}

}  // namespace
}  // namespace horo::rendezvous
