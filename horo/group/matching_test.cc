#include "horo/group/matching.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>

namespace horo::group {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

/// Members whose letters travel when the test says so.
class Members {
 public:
  explicit Members(int count) : all_(static_cast<size_t>(count)) {}

  Matching& at(int member) { return all_[static_cast<size_t>(member)]; }
  /// Moves one letter from one member to another; false when there is none.
  bool move(int from, int to) {
    const auto letter = at(from).next(to);
    if (!letter) return false;
    EXPECT_TRUE(at(to).arrived(from, *letter).ok());
    at(from).left(to);
    return true;
  }
  void settle() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t from = 0; from < all_.size(); ++from) {
        for (size_t to = 0; to < all_.size(); ++to) {
          while (move(static_cast<int>(from), static_cast<int>(to))) moved = true;
        }
      }
    }
  }

 private:
  std::vector<Matching> all_;
};

struct Told {
  Code code;
  int source;
};
std::map<Matching::Id, Told> ends_of(Matching& matching) {
  std::map<Matching::Id, Told> ends;
  for (const auto& end : matching.take_ended()) {
    EXPECT_TRUE(ends.insert({end.id, {end.status.code(), end.source}}).second) << "ended twice: " << end.id;
  }
  return ends;
}

TEST(Matching, DeliversByTagWhateverComesFirst) {
  Members members(2);
  const std::string one = "one", two = "two";
  members.at(0).send(1, {.to = 1, .tag = 7, .data = bytes_of(one)});
  members.at(0).send(2, {.to = 1, .tag = 8, .data = bytes_of(two)});
  members.settle();
  EXPECT_EQ(ends_of(members.at(0)).size(), 2u) << "small messages need no receiver";
  std::string second(3, ' '), first(3, ' ');
  members.at(1).receive(1, {.from = {0}, .tag = 8, .memory = std::as_writable_bytes(std::span(second))});
  members.at(1).receive(2, {.from = {0}, .tag = 7, .memory = std::as_writable_bytes(std::span(first))});
  const auto ends = ends_of(members.at(1));
  EXPECT_EQ(ends.at(1).source, 0);
  EXPECT_EQ(ends.at(2).code, Code::kOk);
  EXPECT_EQ(first, one);
  EXPECT_EQ(second, two);
}

TEST(Matching, LargeMessagesWaitAtTheirSender) {
  Members members(2);
  const std::string large(Matching::kPiece * 2 + 5, 'x');
  members.at(0).send(1, {.to = 1, .data = bytes_of(large)});
  members.settle();
  EXPECT_TRUE(ends_of(members.at(0)).empty());
  std::string got(large.size(), ' ');
  members.at(1).receive(1, {.from = {0}, .memory = std::as_writable_bytes(std::span(got))});
  members.settle();
  EXPECT_EQ(ends_of(members.at(0)).at(1).code, Code::kOk);
  EXPECT_EQ(ends_of(members.at(1)).at(1).code, Code::kOk);
  EXPECT_EQ(got, large);
}

TEST(Matching, MessagesOfEverySizeAroundTheLimitsArrive) {
  Members members(2);
  Matching::Id id = 0;
  for (const size_t limit : {Matching::kPiece, Matching::kMostWhole, 2 * Matching::kPiece}) {
    for (const size_t size : {limit - 1, limit, limit + 1}) {
      const std::string sent(size, static_cast<char>('a' + id % 26));
      std::string got(size, ' ');
      members.at(0).send(++id, {.to = 1, .data = bytes_of(sent)});
      members.at(1).receive(id, {.from = {0}, .memory = std::as_writable_bytes(std::span(got))});
      members.settle();
      EXPECT_EQ(ends_of(members.at(1)).at(id).code, Code::kOk) << size;
      EXPECT_EQ(ends_of(members.at(0)).at(id).code, Code::kOk) << size;
      EXPECT_EQ(got, sent) << size;
    }
  }
}

TEST(Matching, GroupsDoNotMeet) {
  Members members(2);
  const std::string word = "word";
  members.at(0).send(1, {.to = 1, .context = 1, .data = bytes_of(word)});
  std::string got(4, ' ');
  members.at(1).receive(1, {.from = {0}, .context = 2, .memory = std::as_writable_bytes(std::span(got))});
  members.settle();
  EXPECT_TRUE(ends_of(members.at(1)).empty());
}

TEST(Matching, AnotherLengthIsAMismatchOfBothWhereTheSenderWaits) {
  Members members(2);
  for (const size_t size : {size_t{5}, Matching::kMostWhole + 1}) {
    const std::string sent(size, 'x');
    std::string got(3, ' ');
    members.at(0).send(size, {.to = 1, .tag = 3, .data = bytes_of(sent)});
    members.at(1).receive(size, {.from = {0}, .tag = 3, .memory = std::as_writable_bytes(std::span(got))});
    members.settle();
    EXPECT_EQ(ends_of(members.at(1)).at(size).code, Code::kMismatch);
    const bool waits = size > Matching::kMostWhole;
    EXPECT_EQ(ends_of(members.at(0)).at(size).code, waits ? Code::kMismatch : Code::kOk);
    EXPECT_EQ(got, "   ");
  }
}

TEST(Matching, ALostMemberEndsWhatWaitsForItAndNothingElse) {
  Members members(3);
  const std::string large(Matching::kMostWhole + 1, 'x'), small = "s";
  std::string a(1, ' '), b(1, ' '), c(1, ' '), d(1, ' ');
  members.at(2).send(1, {.to = 0, .tag = 1, .data = bytes_of(small)});
  members.settle();
  Matching& here = members.at(0);
  here.send(1, {.to = 2, .data = bytes_of(large)});
  here.send(2, {.to = 1, .data = bytes_of(large)});
  here.receive(3, {.from = {2}, .tag = 9, .memory = std::as_writable_bytes(std::span(a))});
  here.receive(4, {.from = {1, 2}, .tag = 9, .memory = std::as_writable_bytes(std::span(b))});
  here.receive(5, {.from = {1}, .tag = 9, .memory = std::as_writable_bytes(std::span(c))});
  here.lost(2, Status(Code::kPeerLost, "gone"));
  auto ends = ends_of(here);
  EXPECT_EQ(ends.size(), 3u);
  for (const Matching::Id id : {1, 3, 4}) EXPECT_EQ(ends.at(id).code, Code::kPeerLost) << id;
  here.receive(6, {.from = {2}, .tag = 1, .memory = std::as_writable_bytes(std::span(d))});
  here.receive(7, {.from = {2}, .tag = 1, .memory = std::as_writable_bytes(std::span(d))});
  here.send(8, {.to = 2, .data = bytes_of(small)});
  ends = ends_of(here);
  EXPECT_EQ(ends.at(6).code, Code::kOk) << "it came before";
  EXPECT_EQ(ends.at(7).code, Code::kPeerLost);
  EXPECT_EQ(ends.at(8).code, Code::kPeerLost);
}

TEST(Matching, WhatTakesTooLongEndsAndTellsTheOtherSide) {
  Members members(2);
  const Time start{};
  const auto soon = Deadline(start + std::chrono::seconds(1));
  const std::string large(Matching::kPiece * 4, 'x');
  std::string got(large.size(), ' ');
  // Nobody comes.
  members.at(0).send(1, {.to = 1, .tag = 1, .data = bytes_of(large), .deadline = soon});
  members.at(1).receive(1, {.from = {0}, .tag = 2, .memory = std::as_writable_bytes(std::span(got)), .deadline = soon});
  EXPECT_EQ(members.at(0).deadline().at(), soon.at());
  members.settle();
  members.at(0).expire(start + std::chrono::seconds(2));
  members.at(1).expire(start + std::chrono::seconds(2));
  EXPECT_EQ(ends_of(members.at(0)).at(1).code, Code::kTimeout);
  EXPECT_EQ(ends_of(members.at(1)).at(1).code, Code::kTimeout);
  EXPECT_TRUE(members.at(0).deadline().is_never());
  members.settle();
  // What was withdrawn is not received later.
  members.at(1).receive(2, {.from = {0}, .tag = 1, .memory = std::as_writable_bytes(std::span(got))});
  members.settle();
  EXPECT_TRUE(ends_of(members.at(1)).empty());
  // The receiver gives up between two pieces; the rest is dropped.
  members.at(0).send(3, {.to = 1, .tag = 3, .data = bytes_of(large)});
  members.at(1).receive(3, {.from = {0}, .tag = 3, .memory = std::as_writable_bytes(std::span(got)), .deadline = soon});
  ASSERT_TRUE(members.move(0, 1));
  ASSERT_TRUE(members.move(1, 0));
  ASSERT_TRUE(members.move(0, 1));
  members.at(1).expire(start + std::chrono::seconds(2));
  ASSERT_TRUE(members.move(0, 1));
  ASSERT_TRUE(members.move(1, 0)) << "the refusal";
  members.settle();
  EXPECT_EQ(ends_of(members.at(1)).at(3).code, Code::kTimeout);
  EXPECT_EQ(ends_of(members.at(0)).at(3).code, Code::kTimeout);
}

TEST(Matching, ChecksWhatOthersSay) {
  Matching matching;
  EXPECT_EQ(matching.arrived(0, {}).code(), Code::kCorrupt);
  auto letter = encode({.kind = MessageNote::Kind::kAccept, .number = 5});
  EXPECT_TRUE(matching.arrived(0, letter).ok()) << "of a message that is gone";
  letter[0] = std::byte{77};
  EXPECT_EQ(matching.arrived(0, letter).code(), Code::kCorrupt);
  letter[0] = std::byte{static_cast<uint8_t>(MessageNote::Kind::kOffer)};
  letter.push_back(std::byte{1});
  EXPECT_EQ(matching.arrived(0, letter).code(), Code::kCorrupt);
  std::string got(Matching::kMostWhole + 1, ' ');
  matching.receive(1, {.from = {0}, .memory = std::as_writable_bytes(std::span(got))});
  ASSERT_TRUE(matching.arrived(0, encode({.kind = MessageNote::Kind::kOffer, .number = 1, .bytes = got.size()})).ok());
  const std::string too_much(got.size() + 1, 'x');
  const MessageNote piece{.kind = MessageNote::Kind::kPiece, .number = 1, .data = bytes_of(too_much)};
  EXPECT_EQ(matching.arrived(0, encode(piece)).code(), Code::kCorrupt);
}

/// Everybody sends to everybody with few tags, receives in another order, some from anybody; letters of each pair stay
/// in order, those of different pairs do not.
TEST(Matching, OfRandomMessagesEachArrivesOnceAndInOrderPerTag) {
  const char* given = std::getenv("TEST_SEED");
  const auto seed = given != nullptr ? static_cast<uint32_t>(std::strtoul(given, nullptr, 10)) : std::random_device{}();
  SCOPED_TRACE("TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  constexpr int kMembers = 3, kTags = 3, kMessages = 60;
  const size_t sizes[kTags] = {16, Matching::kMostWhole + 9, Matching::kPiece * 2 + 3};
  Members members(kMembers);
  std::vector<std::unique_ptr<std::string>> memory;
  struct Receive {
    int to, from, tag;
    std::string* got;
  };
  std::map<std::pair<int, Matching::Id>, Receive> receives;
  std::map<std::tuple<int, int, int>, uint32_t> next_sent, next_got;
  std::vector<std::pair<int, Receive>> to_receive;
  Matching::Id id = 0;
  for (int i = 0; i < kMessages; ++i) {
    const int from = static_cast<int>(random() % kMembers), to = static_cast<int>(random() % kMembers);
    const int tag = static_cast<int>(random() % kTags);
    memory.push_back(std::make_unique<std::string>(sizes[tag], static_cast<char>('a' + from)));
    const uint32_t number = next_sent[{from, to, tag}]++;
    std::memcpy(memory.back()->data(), &number, sizeof number);
    members.at(from).send(++id, {.to = to, .tag = static_cast<uint64_t>(tag), .data = bytes_of(*memory.back())});
    memory.push_back(std::make_unique<std::string>(sizes[tag], ' '));
    to_receive.push_back({to, {to, from, tag, memory.back().get()}});
  }
  std::shuffle(to_receive.begin(), to_receive.end(), random);
  size_t done = 0;
  for (int step = 0; step < 200000 && done < kMessages; ++step) {
    if (!to_receive.empty() && random() % 8 == 0) {
      const auto [to, receive] = to_receive.back();
      to_receive.pop_back();
      receives[{to, ++id}] = receive;
      members.at(to).receive(id, {.from = {receive.from},
                                  .tag = static_cast<uint64_t>(receive.tag),
                                  .memory = std::as_writable_bytes(std::span(*receive.got))});
    }
    members.move(static_cast<int>(random() % kMembers), static_cast<int>(random() % kMembers));
    for (int to = 0; to < kMembers; ++to) {
      for (const auto& [ended, told] : ends_of(members.at(to))) {
        ASSERT_EQ(told.code, Code::kOk);
        const auto found = receives.find({to, ended});
        if (found == receives.end()) continue;  // A send.
        ++done;
        EXPECT_EQ(told.source, found->second.from);
        EXPECT_EQ(found->second.got->back(), 'a' + found->second.from);
      }
    }
  }
  ASSERT_EQ(done, static_cast<size_t>(kMessages)) << "something never came";
  // In the order of the receives, which are numbered.
  for (const auto& [key, receive] : receives) {
    uint32_t number = 0;
    std::memcpy(&number, receive.got->data(), sizeof number);
    EXPECT_EQ(number, (next_got[{receive.from, receive.to, receive.tag}]++));
  }
}

}  // namespace
}  // namespace horo::group
