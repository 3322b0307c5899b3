#include "cli/run/message.h"

#include <gtest/gtest.h>

#include <random>

#include "cli/run/duct.h"

#include "horo/base/text.h"

namespace horo::cli::launch {
namespace {

StartOrder an_order() {
  StartOrder order;
  order.key.fill(std::byte{7});
  order.folder = "/some/folder";
  order.command = {"python", "train.py", "", "with space"};
  order.environment = {{"PATH", "/bin"}, {"EMPTY", ""}};
  order.ranks = {{0, 0, {{"HORO_RANK", "0"}}, ""}, {3, 1, {}, "/out/rank.3"}};
  order.interfaces = {"eth0"};
  order.peers = {"10.0.0.1", "fd00::1"};
  order.wants_results = true;
  order.gpus_per_rank = 2;
  order.share_gpus = true;
  order.slots = 4;
  order.elastic = order.far = order.may_grow = true;
  return order;
}

TEST(LaunchMessages, SurviveTheWire) {
  const auto start = decode_start(encode(an_order()));
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_EQ(start->key, an_order().key);
  EXPECT_EQ(start->command, an_order().command);
  EXPECT_EQ(start->environment, an_order().environment);
  ASSERT_EQ(start->ranks.size(), 2u);
  EXPECT_EQ(start->ranks[1].rank, 3);
  EXPECT_EQ(start->ranks[1].slot, 1);
  EXPECT_EQ(start->ranks[1].output, "/out/rank.3");
  EXPECT_EQ(start->slots, 4);
  EXPECT_TRUE(start->elastic && start->far && start->may_grow);
  EXPECT_EQ(start->peers, an_order().peers);
  EXPECT_TRUE(start->wants_results);
  EXPECT_EQ(start->gpus_per_rank, 2);
  EXPECT_TRUE(start->share_gpus);
  const auto end = decode_end_of_rank(encode(RankEnd{5, 0, 9, true, "why"}));
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(end->rank, 5);
  EXPECT_EQ(end->signal, 9);
  EXPECT_TRUE(end->asked);
  EXPECT_EQ(end->error, "why");
  const auto payload = encode(Output{2, Stream::kStderr, std::string_view("a\0b", 3)});
  const auto output = decode_output(payload);
  ASSERT_TRUE(output.ok());
  EXPECT_EQ(output->bytes, std::string_view("a\0b", 3));
  EXPECT_EQ(output->stream, Stream::kStderr);
  EXPECT_EQ(decode_end(encode(EndOrder{std::chrono::seconds(5)}))->grace, std::chrono::seconds(5));
  const auto one = decode_end_one(encode(EndRankOrder{7, std::chrono::seconds(2)}));
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->rank, 7);
  EXPECT_EQ(one->grace, std::chrono::seconds(2));
  EXPECT_EQ(*decode_text(encode_text("words")), "words");
}

TEST(LaunchMessages, AnotherProtocolIsToldByItsVersionAlone) {
  AgentHello hello{.protocol = 99, .version = "9.9"};
  auto bytes = encode(hello);
  bytes.resize(4 + 4 + 3);
  const auto decoded = decode_hello(bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->protocol, 99u);
  EXPECT_EQ(decoded->version, "9.9");
}

TEST(LaunchMessages, CutShortOrChangedAreRefusedOrHarmless) {
  const auto whole = encode(an_order());
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(decode_start(std::span(whole).first(size)).ok()) << size;
  }
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(text("seed ", seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 3000; ++i) {
    auto bytes = whole;
    bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    if (const auto order = decode_start(bytes); order.ok()) {
      EXPECT_FALSE(order->command.empty());
    }
  }
}

TEST(LaunchMessages, VariablesThatWouldBecomeOthersAreRefused) {
  StartOrder order = an_order();
  order.environment["A=B"] = "c";
  EXPECT_FALSE(decode_start(encode(order)).ok());
  order = an_order();
  order.environment["A"] = std::string("x\0y", 3);
  EXPECT_FALSE(decode_start(encode(order)).ok());
}

std::vector<std::byte> bytes_of(std::string_view words) {
  const auto bytes = std::as_bytes(std::span(words));
  return {bytes.begin(), bytes.end()};
}

TEST(MessageCutter, PassesOverWhatALoginShellSays) {
  MessageCutter cutter(true);
  cutter.add(bytes_of("Welcome to node7!\n\0horo ag"));
  EXPECT_FALSE(*cutter.next());
  cutter.add(bytes_of(std::string("\n") + std::string(kGreeting) + std::string("\x02\0\0\0\x08hi\x01\0", 9)));
  const auto message = cutter.next();
  ASSERT_TRUE(message.ok() && *message) << message.status();
  EXPECT_EQ((*message)->type, MessageType::kAlive);
  EXPECT_EQ((*message)->payload, bytes_of("hi"));
  EXPECT_TRUE(cutter.noise().starts_with("Welcome"));
  EXPECT_FALSE(*cutter.next());
  EXPECT_EQ(cutter.waiting(), 2u);
}

TEST(MessageCutter, RefusesWhatIsNoMessage) {
  MessageCutter long_one(false);
  long_one.add(bytes_of("\xff\xff\xff\x7f\x01"));
  EXPECT_EQ(long_one.next().status().code(), Code::kCorrupt);
  MessageCutter no_type(false);
  no_type.add(bytes_of(std::string_view("\0\0\0\0\0", 5)));
  EXPECT_EQ(no_type.next().status().code(), Code::kCorrupt);
  MessageCutter babble(true);
  babble.add(std::vector<std::byte>(100'000, std::byte{'x'}));
  EXPECT_EQ(babble.next().status().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace horo::cli::launch
