#include "horo/rendezvous/message.h"

#include <gtest/gtest.h>

namespace horo::rendezvous {
namespace {

Message flush() {
  Message message{MessageKind::kFlush, 9, {}, {{1, 5, 6}, {7, 0, 0}}};
  message.lost.add({2, LossReason::kFrozen});
  message.lost.add({0, LossReason::kKilled});
  return message;
}

TEST(MembershipMessage, ComesBackAsItWasSent) {
  auto decoded = decode_message(encode(flush()), 4);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, flush());
}

TEST(MembershipMessage, IsRefusedWhenTruncatedOrContinued) {
  auto bytes = encode(flush());
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_EQ(decode_message(std::span(bytes).first(length), 4).status().code(), Code::kCorrupt) << length;
  }
  bytes.push_back(std::byte{0});
  EXPECT_EQ(decode_message(bytes, 4).status().code(), Code::kCorrupt);
}

TEST(MembershipMessage, IsRefusedWhenItNamesARankBeyondTheJob) {
  EXPECT_FALSE(decode_message(encode(flush()), 2).ok());
  EXPECT_TRUE(decode_message(encode(flush()), 3).ok());
}

TEST(MembershipMessage, IsRefusedWithReportsThatCannotBe) {
  Message unsorted{MessageKind::kFlush, 9, {}, {{7, 0, 0}, {1, 5, 6}}};
  EXPECT_FALSE(decode_message(encode(unsorted), 4).ok());
  Message unheld{MessageKind::kFlush, 9, {}, {{7, 5, 4}}};
  EXPECT_FALSE(decode_message(encode(unheld), 4).ok());
  Message talkative{MessageKind::kStable, 9, {}, {{7, 5, 5}}};
  EXPECT_FALSE(decode_message(encode(talkative), 4).ok());
}

}  // namespace
}  // namespace horo::rendezvous
