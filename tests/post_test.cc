// Messages between the members of a group, between real processes.
#include "horo/group/post.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>

#include "tests/job.h"

#include "horo/base/text.h"

namespace horo::test {
namespace {

using group::Engine;
using group::Letter;
using group::Post;

struct Way {
  const char* name;
  JobOptions options;
};

/// Shared memory, sockets, and two "hosts" of which each shares memory.
std::vector<Way> ways(int ranks) {
  JobOptions shm{.ranks = ranks};
  JobOptions tcp{.ranks = ranks, .environment = {{"HORO_TRANSPORT", "tcp"}, {"HORO_INTERFACE", "127.0.0.1"}}};
  JobOptions mixed{.ranks = ranks, .environment = {{"HORO_INTERFACE", "127.0.0.1"}}};
  mixed.per_rank = [](int rank) {
    return std::map<std::string, std::string, std::less<>>{{"HORO_HOST_ID", rank < 2 ? "a" : "b"}};
  };
  return {{"shm", shm}, {"tcp", tcp}, {"mixed", mixed}};
}

size_t random_size(std::mt19937& random) {
  switch (random() % 1000) {
    case 0:
      return random() % (size_t{1} << 20);
    case 1:
    case 2:
      return random() % 100'000;
    default:
      return random() % 200;
  }
}

/// Of message `number` from `from` to `to`: sizes and bytes that both ends know.
class Story {
 public:
  Story(uint32_t seed, int from, int to) : random_(seed * 1009 + static_cast<uint32_t>(from * 31 + to)) {}
  std::vector<std::byte> next() {
    std::vector<std::byte> bytes(random_size(random_));
    const uint32_t key = random_();
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>((i + (i >> 8) * 7 + key) & 0xFF);
    return bytes;
  }

 private:
  std::mt19937 random_;
};

/// Everybody sends `messages` to everybody and checks what comes. Zero when all is right.
int exchange(Engine& engine, const std::shared_ptr<group::Group>& group, uint32_t seed, int messages) {
  auto post = Post::open(engine, group, Deadline::after_seconds(30));
  if (!post.ok()) {
    tell(post.status().to_string());
    return 2;
  }
  const int self = group->member();
  std::vector<Story> out, in;
  for (int member = 0; member < group->size(); ++member) {
    out.emplace_back(seed, self, member);
    in.emplace_back(seed, member, self);
  }
  const Deadline deadline = Deadline::after_seconds(120);
  const int expected = messages * group->size();
  int sent = 0;
  for (int received = 0;;) {
    const uint32_t seen = engine.bell().look();
    (*post)->pump();
    if (sent == messages && received == expected && (*post)->queued() == 0) break;
    bool moved = false;
    for (int burst = 0; burst < 16 && sent < messages && (*post)->queued() < (size_t{1} << 20); ++burst, ++sent) {
      for (int member = 0; member < group->size(); ++member) {
        if (!(*post)->send(member, out[static_cast<size_t>(member)].next()).ok()) return 3;
      }
      moved = true;
    }
    while (auto letter = (*post)->receive()) {
      if (letter->bytes != in[static_cast<size_t>(letter->from)].next()) return 4;
      ++received;
      moved = true;
    }
    if (group->over()) {
      tell(group->over()->to_string());
      return 5;
    }
    if (!moved && !engine.bell().wait(seen, deadline, false)) {
      tell(text("member ", self, " has sent ", sent, " and received ", received, " of ", expected, ", ",
                (*post)->queued(), " bytes wait"));
      return 6;
    }
  }
  // Nobody goes before all have everything: the end of a rank is the end of the group.
  const Status met = group->run({}, nullptr, nullptr, Deadline::after_seconds(30), false);
  if (!met.ok()) tell(met.to_string());
  return met.ok() ? 0 : 7;
}

void expect_all_zero(Job& job, const char* way) {
  auto codes = job.wait(Deadline::after_seconds(150));
  ASSERT_TRUE(codes.ok()) << codes.status();
  for (size_t rank = 0; rank < codes->size(); ++rank) {
    EXPECT_EQ((*codes)[rank], 0) << way << ", rank " << rank << ": " << job.told(static_cast<int>(rank));
  }
}

TEST(Post, MessagesOfAnySizeComeWholeAndInOrder) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  constexpr int kRanks = 3;
  constexpr int kMessages = 12'000;  // To each of three, by each of three: about 10^5.
  for (const Way& way : ways(kRanks)) {
    auto job = Job::start(way.options,
                          [&](Engine& engine) { return exchange(engine, engine.world_handle(), seed, kMessages); });
    ASSERT_TRUE(job.ok()) << job.status();
    expect_all_zero(**job, way.name);
  }
}

TEST(Post, MembersOnOneHostUseSharedMemoryAndAllOthersTheControlConnections) {
  const auto ways_of_four = ways(4);
  for (const Way& way : ways_of_four) {
    auto job = Job::start(way.options, [&](Engine& engine) {
      auto post = Post::open(engine, engine.world_handle(), Deadline::after_seconds(30));
      if (!post.ok()) return 2;
      std::string names;
      for (int member = 0; member < 4; ++member) names += text((*post)->transport_name(member), " ");
      tell(names);
      return 0;
    });
    ASSERT_TRUE(job.ok()) << job.status();
    expect_all_zero(**job, way.name);
    const std::string words = (*job)->told(1);
    const std::string expected = std::string(way.name) == "shm"   ? "shm none shm shm "
                                 : std::string(way.name) == "tcp" ? "control none control control "
                                                                  : "shm none control control ";
    EXPECT_EQ(words, expected) << way.name;
  }
}

TEST(Post, GroupsHaveAPostEachAndGiveItsMemoryBack) {
  for (const Way& way : ways(3)) {
    auto job = Job::start(way.options, [](Engine& engine) {
      for (uint32_t turn = 0; turn < 5; ++turn) {
        auto group = engine.create_group({0, 1, 2}, Deadline::after_seconds(20));
        if (!group.ok()) return 8;
        if (int wrong = exchange(engine, *group, turn, 50); wrong != 0) return wrong;
        engine.remove_group(*group);
      }
      return exchange(engine, engine.world_handle(), 9, 50);
    });
    ASSERT_TRUE(job.ok()) << job.status();
    expect_all_zero(**job, way.name);
  }
}

TEST(Post, TheLongestMessageArrivesAndALongerOneIsRefused) {
  for (const Way& way : ways(2)) {
    auto job = Job::start(way.options, [](Engine& engine) {
      auto post = Post::open(engine, engine.world_handle(), Deadline::after_seconds(30));
      if (!post.ok()) return 2;
      std::vector<std::byte> message(Post::kMostBytes + 1, std::byte{7});
      if ((*post)->send(1, message).code() != Code::kInvalidArgument) return 3;
      if ((*post)->send(2, {}).code() != Code::kInvalidArgument) return 3;
      if ((*post)->send(-1, {}).code() != Code::kInvalidArgument) return 3;
      message.resize(Post::kMostBytes);
      const Deadline deadline = Deadline::after_seconds(60);
      if (engine.rank() == 0 && !(*post)->send(1, message).ok()) return 4;
      while (true) {  // Until the other end has it and says so.
        const uint32_t seen = engine.bell().look();
        (*post)->pump();
        if (auto letter = (*post)->receive()) {
          if (letter->bytes != (engine.rank() == 0 ? std::vector<std::byte>() : message)) return 5;
          if (engine.rank() == 1 && !(*post)->send(0, {}).ok()) return 6;
          return engine.world().run({}, nullptr, nullptr, deadline, false).ok() ? 0 : 7;
        }
        if (!engine.bell().wait(seen, deadline, false)) return 8;
      }
    });
    ASSERT_TRUE(job.ok()) << job.status();
    expect_all_zero(**job, way.name);
  }
}

constexpr int kVictim = 1;

/// In a survivor: says who is lost, and stays until the others have heard it too, lest it be missed itself.
int name_the_lost(const Status& why, Hold& hold) {
  tell(text(why, "\n"));
  hold.wait();
  return why.code() == Code::kPeerLost && why.lost() == std::vector<int>{kVictim} ? 0 : 3;
}

/// The survivors of a job have told who is lost and may go.
void expect_survivors(Job& job, Hold& hold, int ranks, const char* way) {
  std::string words;
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == kVictim) continue;
    auto line = job.next_line(rank, Deadline::after_seconds(30));
    words += text("rank ", rank, ": ", line.ok() ? *line : line.status().to_string(), "\n");
  }
  hold.let_go();
  auto codes = job.wait(Deadline::after_seconds(60));
  ASSERT_TRUE(codes.ok()) << way << ": " << codes.status() << "\n" << words;
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ((*codes)[static_cast<size_t>(rank)], rank == kVictim ? -SIGKILL : 0) << way << ", rank " << rank << "\n"
                                                                                   << words;
  }
}

/// Everybody sends to everybody without end. The victim kills itself in the middle, when all others are at it, too;
/// they must hear of it.
int chatter_until_over(Engine& engine, Hold& hold, uint32_t seed) {
  const auto& world = engine.world_handle();
  auto post = Post::open(engine, world, Deadline::after_seconds(30));
  if (!post.ok()) return 2;
  std::mt19937 random(seed + static_cast<uint32_t>(engine.rank()));
  const int fatal = 50 + static_cast<int>(random() % 500);
  std::vector<std::byte> message;
  std::set<int> heard;
  const Deadline deadline = Deadline::after_seconds(20);
  for (int turn = 0;; ++turn) {
    const uint32_t seen = engine.bell().look();
    if (auto why = world->over()) return name_the_lost(*why, hold);
    const bool all_there = heard.size() == static_cast<size_t>(world->size());
    if (engine.rank() == kVictim && turn >= fatal && all_there) raise(SIGKILL);
    (*post)->pump();
    bool moved = false;
    for (int member = 0; member < world->size() && (*post)->queued() < (size_t{1} << 20); ++member) {
      message.resize(random_size(random));
      if (!(*post)->send(member, message).ok()) return 4;
      moved = true;
    }
    while (auto letter = (*post)->receive()) {
      heard.insert(letter->from);
      moved = true;
    }
    if (!moved && !engine.bell().wait(seen, deadline, false)) return 5;
  }
}

TEST(Post, WhenARankIsKilledTheOthersAreWokenAndHearWhoIsLost) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  for (uint32_t round = 0; round < 5; ++round) {
    for (const Way& way : ways(4)) {
      Hold hold;
      auto job = Job::start(way.options, [&](Engine& engine) {
        hold.take_part();
        return chatter_until_over(engine, hold, seed + round);
      });
      ASSERT_TRUE(job.ok()) << job.status();
      expect_survivors(**job, hold, 4, way.name);
    }
  }
}

TEST(Post, ASleeperHearsOfADeathThatItDidNotWaitFor) {
  for (const Way& way : ways(3)) {
    Hold hold;
    auto job = Job::start(way.options, [&](Engine& engine) {
      hold.take_part();
      if (engine.rank() == kVictim) raise(SIGKILL);
      const auto& world = engine.world_handle();
      const Deadline deadline = Deadline::after_seconds(20);
      while (true) {
        const uint32_t seen = engine.bell().look();
        if (auto why = world->over()) return name_the_lost(*why, hold);
        if (!engine.bell().wait(seen, deadline, false)) return 4;
      }
    });
    ASSERT_TRUE(job.ok()) << job.status();
    expect_survivors(**job, hold, 3, way.name);
  }
}

TEST(Post, AMemberThatEndsTheGroupOrTheJobIsNamed) {
  for (const Way& way : ways(2)) {
    auto job = Job::start(way.options, [](Engine& engine) {
      auto group = engine.create_group({0, 1}, Deadline::after_seconds(20));
      if (!group.ok()) return 2;
      const auto await_end = [&](const group::Group& of, Code code) {
        const Deadline deadline = Deadline::after_seconds(20);
        while (true) {
          const uint32_t seen = engine.bell().look();
          if (auto why = of.over(); why && why->code() == code) return true;
          if (!engine.bell().wait(seen, deadline, false)) return false;
        }
      };
      if (engine.rank() == 1) {
        engine.remove_group(*group);
        if ((*group)->over()->code() != Code::kStopped) return 3;
      } else if (!await_end(**group, Code::kStopped)) {
        return 4;
      }
      if (!engine.world().run({}, nullptr, nullptr, Deadline::after_seconds(20)).ok()) return 5;
      if (engine.rank() == 1) return 0;  // And so ends the engine.
      return await_end(engine.world(), Code::kPeerLost) && engine.world().over()->lost() == std::vector<int>{1} ? 0 : 6;
    });
    ASSERT_TRUE(job.ok()) << job.status();
    expect_all_zero(**job, way.name);
  }
}

TEST(Post, AGroupThatIsGivenUpIsOverForAllMembersWithTheReason) {
  for (const Way& way : ways(3)) {
    Hold hold;
    auto job = Job::start(way.options, [&](Engine& engine) {
      hold.take_part();
      const auto& world = engine.world_handle();
      // All have it by then: who hears of it earlier has no group at all. Some may hear of it in here.
      (void)world->run({}, nullptr, nullptr, Deadline::after_seconds(20)).ok();
      if (engine.rank() == 2) world->give_up(Status(Code::kCorrupt, "a bad egg"));
      const Deadline deadline = Deadline::after_seconds(20);
      std::optional<Status> why;
      for (uint32_t seen = engine.bell().look(); !(why = world->over()); seen = engine.bell().look()) {
        if (!engine.bell().wait(seen, deadline, false)) return 3;
      }
      tell(why->to_string() + "\n");
      hold.wait();  // Who leaves before the others have heard is missed itself.
      if (why->code() != Code::kCorrupt || why->message().find("a bad egg") == std::string::npos) return 4;
      return world->run({}, nullptr, nullptr, deadline).code() == Code::kCorrupt ? 0 : 5;
    });
    ASSERT_TRUE(job.ok()) << job.status();
    for (int rank : {0, 1, 2}) ASSERT_TRUE((*job)->next_line(rank, Deadline::after_seconds(30)).ok()) << rank;
    hold.let_go();
    expect_all_zero(**job, way.name);
  }
}

/// Half of the time of a message and its answer, in microseconds.
double ping_pong(Engine& engine, Post& post, bool may_spin, int turns) {
  std::vector<double> times;
  const std::byte word[32] = {};
  const Deadline deadline = Deadline::after_seconds(30);
  const int other = 1 - engine.rank();
  for (int turn = 0; turn < turns; ++turn) {
    const Time start = Clock::now();
    if (engine.rank() == 0 && !post.send(other, word).ok()) return -1;
    while (true) {
      const uint32_t seen = engine.bell().look();
      if (post.receive()) break;
      if (!engine.bell().wait(seen, deadline, may_spin)) return -1;
    }
    if (engine.rank() == 1 && !post.send(other, word).ok()) return -1;
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count() / 2);
  }
  std::nth_element(times.begin(), times.begin() + turns / 2, times.end());
  return times[static_cast<size_t>(turns) / 2];
}

TEST(Post, SaysHowLongAMessageTakes) {
  for (const Way& way : ways(2)) {
    if (std::string(way.name) == "mixed") continue;
    auto job = Job::start(way.options, [](Engine& engine) {
      auto post = Post::open(engine, engine.world_handle(), Deadline::after_seconds(30));
      if (!post.ok()) return 2;
      const double spinning = ping_pong(engine, **post, true, 3000);
      const double sleeping = ping_pong(engine, **post, false, 3000);
      tell(text("spinning ", spinning, " us, sleeping ", sleeping, " us"));
      return spinning > 0 && sleeping > 0 ? 0 : 3;
    });
    ASSERT_TRUE(job.ok()) << job.status();
    expect_all_zero(**job, way.name);
    std::printf("[ MEASURED ] 32 bytes, %s, median of one way: %s\n", way.name, (*job)->told(0).c_str());
  }
}

}  // namespace
}  // namespace horo::test
