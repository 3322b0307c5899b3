// Everything at once, with up to 64 members: different orders, members that run ahead, joins, mismatches of every term,
// groups, duplicates, evictions, windows that change, sets that come and go. Every seed prints and replays.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "horo/base/text.h"
#include "horo/engine/queue.h"
#include "horo/engine/world_testing.h"

namespace horo::engine {
namespace {

/// One way in which a rank's program may differ from the others'.
using Change = void (*)(Unit& unit);
constexpr Change kChanges[] = {
    [](Unit& unit) { unit.tensors[0].dtype = DType::kF64; },
    [](Unit& unit) { unit.tensors[0].shape.back() += 1; },
    [](Unit& unit) { unit.tensors[0].kind = unit.kind() == Kind::kAllreduce ? Kind::kAllgather : Kind::kAllreduce; },
    [](Unit& unit) { unit.tensors[0].reduction = Reduction::kMin; },
    [](Unit& unit) { unit.tensors[0].root += 1; },
    [](Unit& unit) { unit.tensors[0].prescale = 0.5; },
    [](Unit& unit) { unit.tensors[0].postscale = 2.0; },
    [](Unit& unit) { unit.tensors[0].place = Place::kDevice; },
    [](Unit& unit) { std::reverse(unit.tensors.begin(), unit.tensors.end()); },
    [](Unit& unit) { unit.tensors.pop_back(); },
    [](Unit& unit) { unit.tensors.back().name += "?"; },
};
constexpr int kMostMembers = 64;
constexpr size_t kForGroupsOnly = 3;  ///< The last ones.

/// What the members of a set do, and what must come of it.
struct Story {
  std::vector<std::vector<Unit>> units;  ///< By member, in the order in which it hands in.
  std::map<std::string, size_t> runs, failures;
};

/// Units of `rounds` rounds; member m takes part in the first `lengths[m]` of them and joins then.
Story story_of(std::mt19937_64& random, const std::vector<size_t>& lengths) {
  Story story;
  story.units.resize(lengths.size());
  const size_t rounds = *std::max_element(lengths.begin(), lengths.end());
  for (size_t round = 0; round < rounds; ++round) {
    std::vector<std::vector<Unit>> step(lengths.size());
    for (int number = 0; number < 5; ++number) {
      constexpr Kind kKinds[] = {Kind::kAllreduce, Kind::kAllreduce,     Kind::kAllgather, Kind::kBroadcast,
                                 Kind::kAlltoall,  Kind::kReduceScatter, Kind::kBarrier};
      Unit unit = one(text("t", number), kKinds[random() % 7], {static_cast<int64_t>(1 + random() % 2), 3});
      for (uint64_t more = random() % 3; more > 0 && number % 2 == 0; --more) {
        unit.tensors.push_back(unit.tensors[0]);
        unit.tensors.back().name = text("t", number, "+", more);
      }
      const size_t changes = std::size(kChanges) - (unit.tensors.size() > 1 ? 0 : kForGroupsOnly);
      const Change change = random() % 5 == 0 ? kChanges[random() % changes] : nullptr;
      const size_t odd = random() % lengths.size();
      std::vector<Unit> asked;
      for (size_t member = 0; member < lengths.size(); ++member) {
        if (lengths[member] <= round) continue;
        step[member].push_back(unit);
        if (change != nullptr && member == odd) change(step[member].back());
        asked.push_back(step[member].back());
      }
      bool fine = std::all_of(asked.begin(), asked.end(), [&](const Unit& one) { return agree(one, asked[0]); });
      const Kind kind = asked[0].kind();
      fine &= asked.size() == lengths.size() || kind == Kind::kAllreduce || kind == Kind::kBarrier;
      ++(fine ? story.runs : story.failures)[unit.key()];
    }
    for (size_t member = 0; member < lengths.size(); ++member) {
      std::shuffle(step[member].begin(), step[member].end(), random);
      story.units[member].insert(story.units[member].end(), step[member].begin(), step[member].end());
    }
  }
  return story;
}

/// A set with the queue of each of its members, as ProcessSet puts them together.
class Set {
 public:
  Set(std::mt19937_64& random, int members, uint64_t seed, const std::vector<size_t>& lengths)
      : story_(story_of(random, lengths)), world_(plan_for(random, members), seed), sides_(lengths.size()) {
    world_.on_run = [this](int member, const Unit& unit) { on_run(member, unit); };
    world_.on_failed = [this](int member, const std::string& key) { on_failed(member, key); };
    world_.on_joined = [this](int member) { side(member).joined = side(member).through = true; };
  }

  World& world() { return world_; }
  int members() const { return static_cast<int>(sides_.size()); }
  bool done() const {
    return std::all_of(sides_.begin(), sides_.end(), [](const Side& side) { return side.through; });
  }

  /// One thing that a member's program may do now. False when it must wait.
  bool act(int member) {
    Side& side = this->side(member);
    if (side.joined) return false;
    const std::vector<Unit>& units = story_.units[static_cast<size_t>(member)];
    if (side.next == units.size()) {
      side.joined = true;
      world_.at(member).join();
      return true;
    }
    const Unit& unit = units[side.next];
    std::vector<Call> calls;
    for (const Tensor& tensor : unit.tensors) calls.push_back({tensor, nullptr, nullptr, nullptr, {}});
    const bool in_use = std::any_of(unit.tensors.begin(), unit.tensors.end(),
                                    [&](const Tensor& tensor) { return side.names.contains(tensor.name); });
    const bool taken = side.queue.push(std::make_shared<Submission>(std::move(calls), nullptr)).ok();
    EXPECT_EQ(taken, !in_use) << "a name in use, and no other, is refused";
    if (!taken) return false;
    for (const Tensor& tensor : unit.tensors) side.names.insert(tensor.name);
    for (const Handle& handle : side.queue.take_new()) world_.announce(member, handle->unit());
    ++side.next;
    return true;
  }

  void expect_right_end() {
    for (int member = 0; member < members(); ++member) {
      const Side& mine = side(member);
      EXPECT_TRUE(mine.through) << "member " << member << " is stuck after " << mine.next << " units, with "
                                << mine.queue.size() << " names open";
      EXPECT_EQ(mine.queue.size(), 0u) << "member " << member;
      EXPECT_EQ(mine.log, side(0).log) << "member " << member << " did something else, or in another order";
      EXPECT_EQ(world_.at(member).incomplete(), 0u) << "member " << member << " still waits for something";
      EXPECT_EQ(world_.at(member).cached(), world_.at(0).cached());
    }
    EXPECT_EQ(side(0).runs, story_.runs);
    EXPECT_EQ(side(0).failures, story_.failures);
    const uint64_t messages = world_.messages();
    world_.settle();
    EXPECT_EQ(world_.messages(), messages) << "an idle set sends messages";
  }

 private:
  struct Side {
    Queue queue;
    std::set<std::string> names;  ///< Of what is open: what the queue should know.
    size_t next = 0;
    bool joined = false, through = false;
    std::vector<std::string> log;
    std::map<std::string, size_t> runs, failures;
  };
  Side& side(int member) { return sides_[static_cast<size_t>(member)]; }

  Handle close(int member, const std::string& key) {
    Handle mine = side(member).queue.take(key);
    if (mine == nullptr) {
      EXPECT_TRUE(side(member).joined) << "member " << member << " never handed in '" << key << "'";
      return nullptr;
    }
    for (const Tensor& tensor : mine->unit().tensors) side(member).names.erase(tensor.name);
    return mine;
  }
  void on_run(int member, const Unit& unit) {
    const Handle mine = close(member, unit.key());
    EXPECT_TRUE(mine == nullptr || agree(mine->unit(), unit))
        << "member " << member << " runs other terms than its own";
    ++side(member).runs[unit.key()];
    side(member).log.push_back(text("run ", describe(unit.tensors[0]), " ", unit.key(), " ", unit.tensors.size()));
  }
  void on_failed(int member, const std::string& key) {
    close(member, key);
    ++side(member).failures[key];
    side(member).log.push_back("fail " + world_.log(member).failures.at(key));
    const std::string& words = side(member).log.back();
    EXPECT_NE(words.find("'t"), std::string::npos) << "names no tensor: " << words;
    EXPECT_NE(words.find(" rank"), std::string::npos) << "names no rank: " << words;
  }

  Story story_;
  World world_;
  std::vector<Side> sides_;
};

/// What is done to every message; nothing where there is none.
using Mistake = decltype(World::on_delivery);

void run_storm(uint64_t seed, const Mistake& mistake = {}) {
  SCOPED_TRACE(text("TEST_SEED=", seed, " replays it"));
  std::mt19937_64 random(seed);
  std::vector<std::unique_ptr<Set>> sets;
  for (uint64_t number = 0; number < 1 + random() % 3; ++number) {
    const int members = 1 + static_cast<int>(random() % (number == 0 ? uint64_t{kMostMembers} : 8));
    std::vector<size_t> lengths;
    for (int member = 0; member < members; ++member) lengths.push_back(3 + random() % 3);
    sets.push_back(std::make_unique<Set>(random, members, seed + number, lengths));
    sets.back()->world().on_delivery = mistake;
  }
  const auto done = [&] { return std::all_of(sets.begin(), sets.end(), [](const auto& set) { return set->done(); }); };
  for (int idle = 0; idle < 20 && !done(); ++idle) {
    for (int turn = 0; turn < 4000 && !done(); ++turn) {
      Set& set = *sets[random() % sets.size()];
      const auto member = static_cast<int>(random() % static_cast<uint64_t>(set.members()));
      if (set.act(member)) idle = 0;
      if (random() % 3 == 0) set.world().step(member);
      if (random() % 2 == 0 && set.world().deliver()) idle = 0;
      if (random() % 16 == 0) set.world().pass(std::chrono::microseconds(random() % 400));
      if (random() % 64 == 0) set.world().at(member).set_waiting(random() % 2 == 0);
      if (random() % 64 == 0) set.world().at(0).coordinator().set_window(std::chrono::microseconds(random() % 2000));
    }
    for (const auto& set : sets) set->world().settle();
  }
  for (const auto& set : sets) {
    set->world().settle();
    set->expect_right_end();
  }
}

TEST(Storm, WhateverMembersDoAllOfThemDoTheSameAndNothingIsLost) {
  const uint64_t first = base_seed();
  const uint64_t seeds = std::getenv("LONG_TESTS") != nullptr ? 5000 : 300;  // NOLINT(concurrency-mt-unsafe)
  std::printf("  seeds %llu to %llu\n", static_cast<unsigned long long>(first),
              static_cast<unsigned long long>(first + seeds - 1));
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    run_storm(seed);
    if (HasFailure()) return;
  }
}

// Mistakes that can be planted, to see that the storm would find them. None of them is in product code: they change
// what members hear of each other, as a mistake in what they say would.

template <class Change>
Mistake in_ups(Change change) {
  return [change](const World::Way& way, std::vector<std::byte>& message, World::Messages&) {
    if (way.down) return;
    Up up = *decode_up(message, kMostMembers);
    change(up);
    message = encode(up);
  };
}

/// What member 1 hears, and all below it.
template <class Change>
Mistake in_downs(Change change) {
  return [change](const World::Way& way, std::vector<std::byte>& message, World::Messages&) {
    if (!way.down || way.to != 1) return;
    Down down = *decode_down(message, kMostMembers);
    change(down);
    message = encode(down);
  };
}

struct Planted {
  const char* name;
  Mistake mistake;
  friend void PrintTo(const Planted& planted, std::ostream* out) { *out << planted.name; }
};

std::vector<Planted> planted() {
  return {
      {"KeepsNumbers", in_downs([](Down& down) { down.forgotten.clear(); })},
      {"TurnsBatches", in_downs([](Down& down) { std::reverse(down.batches.begin(), down.batches.end()); })},
      {"MissesFailures", in_downs([](Down& down) { down.failures.clear(); })},
      {"MissesTheEndOfAJoin", in_downs([](Down& down) { down.all_joined.reset(); })},
      {"LosesAnAnnouncement", in_ups([](Up& up) {
         if (!up.known.empty()) up.known.pop_back();
       })},
      {"LosesAJoin", in_ups([](Up& up) { up.joined.clear(); })},
      {"TakesAJoinForAPart", in_ups([](Up& up) {
         up.known.insert(up.known.end(), up.partial.begin(), up.partial.end());
         std::sort(up.known.begin(), up.known.end());
         up.partial.clear();
         for (Arrived& arrived : up.arrived) arrived.partial = false;
       })},
      {"HearsOneOfTwoVariants", in_ups([](Up& up) {
         for (Arrived& arrived : up.arrived) arrived.variants.resize(1), arrived.variants[0].members.clear();
       })},
      {"SaysItTwice",
       [repeating = std::set<int>()](const World::Way& way, std::vector<std::byte>& message,
                                     World::Messages& behind) mutable {
         if (way.down || repeating.erase(way.from) > 0) return;
         Up up = *decode_up(message, kMostMembers);
         up.joined.clear();
         repeating.insert(way.from);
         behind.push_front(encode(up));
       }},
      {"Overtakes",
       [](const World::Way&, std::vector<std::byte>& message, World::Messages& behind) {
         if (!behind.empty()) std::swap(message, behind.back());
       }},
  };
}

class PlantedMistake : public testing::TestWithParam<Planted> {};

TEST_P(PlantedMistake, IsFoundWithinTwoHundredSeeds) {
  for (uint64_t seed = base_seed(); seed < base_seed() + 200; ++seed) {
    testing::TestPartResultArray found;
    {
      testing::ScopedFakeTestPartResultReporter quiet(
          testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &found);
      run_storm(seed, GetParam().mistake);
    }
    if (found.size() == 0) continue;
    const std::string words = found.GetTestPartResult(0).summary();
    std::printf("  found by seed %llu: %s\n", static_cast<unsigned long long>(seed),
                words.substr(0, words.find('\n')).c_str());
    return;
  }
  FAIL() << GetParam().name << " was not found";
}

INSTANTIATE_TEST_SUITE_P(Every, PlantedMistake, testing::ValuesIn(planted()),
                         [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace horo::engine
