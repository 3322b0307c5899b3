#include "cli/run/join_watch.h"

#include <gtest/gtest.h>

#include "horo/base/text.h"
#include "horo/net/poller.h"

namespace horo::cli::launch {
namespace {

TEST(JoinWatch, SaysWhoIsMissingAndNothingElse) {
  using std::chrono::seconds;
  EXPECT_EQ(who_is_missing({0, 2}, 4, seconds(10)), "still waiting for ranks 1, 3 of 4 to join (init()), after 10 s");
  EXPECT_FALSE(who_is_missing({}, 4, seconds(10)));
  EXPECT_FALSE(who_is_missing({0, 1}, 2, seconds(10)));
}

TEST(JoinWatch, ReadsRanksFromTheStoresKeys) {
  EXPECT_EQ(ranks_of_keys({"job/card/0000000", "job/card/0000012", "job/card/x", ""}), (std::set<int>{0, 12}));
}

TEST(JoinWatch, LooksIntoTheStore) {
  auto key = net::Key::random();
  ASSERT_TRUE(key.ok());
  const rendezvous::TcpStoreOptions options{"job", std::make_shared<const net::Key>(std::move(*key)), nullptr};
  auto server = rendezvous::TcpStoreServer::start(net::Address::loopback(), options);
  ASSERT_TRUE(server.ok()) << server.status();
  auto client = rendezvous::TcpStore::connect((*server)->address(), options, Deadline::after_seconds(10));
  ASSERT_TRUE(client.ok()) << client.status();
  ASSERT_TRUE((*client)->set("job/card/0000001", {}, Deadline::after_seconds(10)).ok());
  auto watch = JoinWatch::create(**server, options, "127.0.0.1", 2);
  ASSERT_NE(watch, nullptr);
  EXPECT_TRUE(watch->step(Clock::now()).empty());
  const Time later = Clock::now() + JoinWatch::kInterval;
  EXPECT_TRUE(watch->step(later).empty());  // Asks.
  ASSERT_TRUE(net::wait_ready(watch->fd(), net::Interest::kRead, Deadline::after_seconds(10), "the answer").ok());
  const auto said = watch->step(later);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("waiting for rank 0 of 2"), std::string::npos) << said[0];
}

}  // namespace
}  // namespace horo::cli::launch
