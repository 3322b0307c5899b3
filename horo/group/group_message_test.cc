#include "horo/group/group_message.h"

#include <gtest/gtest.h>

namespace horo::group {
namespace {

const JoinGroup kJoin{
    .ranks = {0, 2, 5},
    .offer = {.needs_wires = true, .area = 4096, .page = 64, .attempt = 3, .settings = {"HORO_X=1", ""}}};
const GroupReady kReady{.ranks = {1, 3},
                        .terms = {.id = 7,
                                  .epoch = 2,
                                  .shares_memory = true,
                                  .areas = {0, 1 << 20},
                                  .pages = {64, 0},
                                  .attempts = {1, 2},
                                  .refusal = "no"}};

TEST(GroupMessage, SurvivesBeingWrittenAndRead) {
  EXPECT_EQ(*decode_join_group(encode(kJoin), 6), kJoin);
  EXPECT_EQ(*decode_group_ready(encode(kReady), 4), kReady);
  const AbandonGroup abandon{Code::kTimeout, "too slow"};
  EXPECT_EQ(*decode_abandon_group(encode(abandon)), abandon);
}

TEST(GroupMessage, ThatEndsEarlyOrGoesOnIsRefused) {
  for (auto bytes : {encode(kJoin), encode(AbandonGroup{Code::kCorrupt, "x"})}) {
    const bool is_join = bytes == encode(kJoin);
    const auto decodes = [&](std::span<const std::byte> part) {
      return is_join ? decode_join_group(part, 6).ok() : decode_abandon_group(part).ok();
    };
    for (size_t length = 0; length < bytes.size(); ++length) EXPECT_FALSE(decodes({bytes.data(), length})) << length;
    bytes.push_back({});
    EXPECT_FALSE(decodes(bytes));
  }
  const auto ready = encode(kReady);
  for (size_t length = 0; length < ready.size(); ++length) {
    EXPECT_FALSE(decode_group_ready({ready.data(), length}, 4).ok()) << length;
  }
}

TEST(GroupMessage, OfRanksThatAreNoGroupIsRefused) {
  const std::vector<std::vector<int>> wrong = {{}, {1}, {2, 1}, {1, 1}, {0, 6}, {-1, 2}, {0, 1, 2, 3, 4, 5, 6}};
  for (const std::vector<int>& ranks : wrong) {
    const Status status = decode_join_group(encode(JoinGroup{.ranks = ranks, .offer = {}}), 6).status();
    EXPECT_EQ(status.code(), Code::kCorrupt) << status;
    GroupReady ready{.ranks = ranks, .terms = {}};
    ready.terms.areas.resize(ranks.size());
    ready.terms.pages.resize(ranks.size());
    ready.terms.attempts.resize(ranks.size());
    EXPECT_EQ(decode_group_ready(encode(ready), 6).status().code(), Code::kCorrupt);
  }
}

TEST(GroupMessage, WithoutAnErrorIsNoReasonToGiveAGroupUp) {
  EXPECT_FALSE(decode_abandon_group(encode(AbandonGroup{Code::kOk, "fine"})).ok());
  EXPECT_FALSE(decode_abandon_group(encode(AbandonGroup{static_cast<Code>(200), "odd"})).ok());
  const AbandonGroup wordy{Code::kInternal, std::string(5000, 'x')};
  EXPECT_EQ(decode_abandon_group(encode(wordy))->why.size(), AbandonGroup::kMostWords);
}

}  // namespace
}  // namespace horo::group
