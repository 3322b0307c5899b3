// Knobs about bytes between hosts, seen by somebody in the middle who listens and damages.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/relay.h"

#include "horo/base/text.h"
#include "horo/group/engine.h"
#include "horo/group/knobs.h"
#include "horo/rendezvous/host.h"
#include "horo/rendezvous/knobs.h"
#include "horo/rendezvous/memory_store.h"

namespace horo::test {
namespace {

using rendezvous::Bytes;
using Span = std::span<const std::byte>;

/// Rank 0 is reached through a relay: its card is changed when it is published.
class BentStore final : public rendezvous::Store {
 public:
  explicit BentStore(Relay::Filter filter) : filter_(std::move(filter)) {}

  Result<rendezvous::Meeting> meet(std::string_view prefix, std::string_view name, Span value, size_t count,
                                   Deadline deadline) override {
    HORO_ASSIGN(rendezvous::PeerCard card, rendezvous::decode_card(value));
    if (card.rank == 0) {
      HORO_ASSIGN(const net::Address to, net::Address::parse(card.addresses.front()));
      HORO_ASSIGN(relay_, Relay::start(to, filter_));
      card.addresses = {relay_->address().to_string()};
    }
    return inner_.meet(prefix, name, rendezvous::encode(card), count, deadline);
  }
  Status set(std::string_view key, Span value, Deadline by) override { return inner_.set(key, value, by); }
  Result<Bytes> claim(std::string_view key, Span value, Deadline by) override { return inner_.claim(key, value, by); }
  Result<Bytes> get(std::string_view key, Deadline by) override { return inner_.get(key, by); }
  Result<int64_t> add(std::string_view key, int64_t delta, Deadline by) override { return inner_.add(key, delta, by); }
  Result<rendezvous::Entries> list(std::string_view prefix, Deadline by) override { return inner_.list(prefix, by); }
  Result<rendezvous::Entries> wait_all(std::string_view prefix, size_t count, Deadline by) override {
    return inner_.wait_all(prefix, count, by);
  }
  Status withdraw(std::string_view key, Span value, Deadline by) override { return inner_.withdraw(key, value, by); }

 private:
  rendezvous::MemoryStore inner_;
  const Relay::Filter filter_;
  std::unique_ptr<Relay> relay_;
};

/// What rank 1 gives: bytes that nothing else on the wire looks like.
constexpr uint32_t kMark = 0x5AC3D271;

bool has_mark(std::span<const std::byte> bytes) {
  const std::vector<uint32_t> marks(4, kMark);
  const auto words = std::as_bytes(std::span(marks));
  // Wherever a piece of the stream was cut, three of four stand in one of them.
  return std::search(bytes.begin(), bytes.end(), words.begin(), words.begin() + 12) != bytes.end();
}

struct Outcome {
  Status status[2];
  bool exact = true;  ///< Rank 0 has the right sum.
};

/// A sum of two ranks on different hosts, through `filter`.
Outcome sum_through(const Relay::Filter& filter, const Environment::Variables& variables) {
  auto store = std::make_shared<BentStore>(filter);
  Outcome outcome;
  std::vector<std::thread> ranks;
  for (int rank : {0, 1}) {
    ranks.emplace_back([&, rank] {
      const Environment environment(
          Environment::Variables{{"HORO_TRANSPORT", "tcp"}, {"HORO_TIMEOUT", "10s"}, {"HORO_LOG_LEVEL", "off"}});
      const auto config = Config::read({rendezvous::kKnobs, group::kKnobs}, environment.with(variables));
      ASSERT_TRUE(config.ok()) << config.status();
      auto engine = group::Engine::start({.rank = rank, .size = 2, .store = store, .config = *config});
      ASSERT_TRUE(engine.ok()) << engine.status();
      std::vector<uint32_t> values(30'000, rank == 1 ? kMark : 0);
      collective::Operation operation;
      operation.kind = collective::Kind::kAllreduce;
      operation.dtype = DType::kU32;
      operation.count = values.size();
      auto* bytes = reinterpret_cast<std::byte*>(values.data());
      outcome.status[rank] = (*engine)->world().run(operation, bytes, bytes, Deadline::after_seconds(20));
      if (rank == 0) outcome.exact = values == std::vector<uint32_t>(values.size(), kMark);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return outcome;
}

TEST(WireKnobs, EncryptHidesTheData) {
  for (const char* value : {"0", "1"}) {
    std::atomic<bool> seen{false};
    const auto listen = [&](std::span<std::byte> bytes) { seen = seen || has_mark(bytes); };
    const Outcome outcome = sum_through(listen, {{"HORO_ENCRYPT", value}});
    EXPECT_TRUE(outcome.status[0].ok() && outcome.exact) << outcome.status[0];
    EXPECT_EQ(seen, std::string_view(value) == "0") << "HORO_ENCRYPT=" << value;
  }
}

TEST(WireKnobs, ChecksumNoticesDamage) {
  for (const char* value : {"1", "0"}) {
    std::atomic<bool> done{false};
    const auto damage = [&](std::span<std::byte> bytes) {
      if (done || bytes.size() < 1000 || !has_mark(bytes.subspan(400, 200))) return;
      bytes[500] ^= std::byte{1};
      done = true;
    };
    const Outcome outcome = sum_through(damage, {{"HORO_CHECKSUM", value}});
    ASSERT_TRUE(done) << "nothing was damaged";
    if (std::string_view(value) == "1") {
      EXPECT_FALSE(outcome.status[0].ok()) << "damage went unnoticed";
      EXPECT_NE(outcome.status[0].message().find("checksum"), std::string::npos) << outcome.status[0];
    } else {
      EXPECT_TRUE(outcome.status[0].ok()) << outcome.status[0];
      EXPECT_FALSE(outcome.exact) << "that is what checksums are for";
    }
  }
}

}  // namespace
}  // namespace horo::test
