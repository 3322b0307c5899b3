// Jobs of real processes: they meet, reduce, make groups, lose members.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <numeric>
#include <set>
#include <thread>

#include "tests/job.h"

#include "horo/base/text.h"

namespace horo::test {
namespace {

using collective::Kind;
using collective::Operation;

Operation allreduce_of(uint64_t count, DType dtype = DType::kF32) {
  Operation operation;
  operation.kind = Kind::kAllreduce;
  operation.dtype = dtype;
  operation.count = count;
  return operation;
}

template <class T>
std::byte* bytes_of(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

/// 1 when something is wrong.
int reduce_and_check(group::Group& group, const std::vector<int>& ranks, int rank, uint64_t count) {
  std::vector<float> values(count, static_cast<float>(rank + 1));
  Status status = group.run(allreduce_of(count), bytes_of(values), bytes_of(values));
  float expected = 0;
  for (int one : ranks) expected += static_cast<float>(one + 1);
  if (!status.ok() || values != std::vector<float>(count, expected)) {
    std::fprintf(stderr, "rank %d: %s, got %g, expected %g\n", rank, status.to_string().c_str(), values[0], expected);
    return 1;
  }
  return 0;
}

void expect_all_zero(Job& job) {
  auto codes = job.wait(Deadline::after_seconds(60));
  ASSERT_TRUE(codes.ok()) << codes.status();
  for (size_t rank = 0; rank < codes->size(); ++rank) EXPECT_EQ((*codes)[rank], 0) << "rank " << rank;
}

TEST(Engine, RanksOfOneHostReduceThroughSharedMemory) {
  for (int ranks : {1, 2, 3, 5}) {
    auto job = Job::start({.ranks = ranks}, [ranks](group::Engine& engine) {
      std::vector<int> all(static_cast<size_t>(ranks));
      std::iota(all.begin(), all.end(), 0);
      if (ranks > 1 && engine.world().transport_name() != "shm") return 2;
      for (uint64_t count : {1, 100, 5000, 300000, 3000000}) {
        if (reduce_and_check(engine.world(), all, engine.rank(), count) != 0) return 1;
      }
      return 0;
    });
    ASSERT_TRUE(job.ok()) << job.status();
    expect_all_zero(**job);
  }
}

TEST(Engine, RanksOfDifferentHostsReduceThroughSharedMemoryAndSockets) {
  JobOptions options{.ranks = 4};
  options.per_rank = [](int rank) {
    return std::map<std::string, std::string, std::less<>>{{"HORO_HOST_ID", rank < 2 ? "a" : "b"},
                                                           {"HORO_INTERFACE", "127.0.0.1"}};
  };
  auto job = Job::start(options, [](group::Engine& engine) {
    if (engine.world().transport_name() != "shm+tcp") return 2;
    for (uint64_t count : {1, 100, 5000, 300000}) {
      if (reduce_and_check(engine.world(), {0, 1, 2, 3}, engine.rank(), count) != 0) return 1;
    }
    return 0;
  });
  ASSERT_TRUE(job.ok()) << job.status();
  expect_all_zero(**job);
}

TEST(Engine, GroupsOfSomeRanksWorkSideBySide) {
  auto job = Job::start({.ranks = 4}, [](group::Engine& engine) {
    const std::vector<int> mine = engine.rank() % 2 == 0 ? std::vector<int>{0, 2} : std::vector<int>{1, 3};
    auto group = engine.create_group(mine, Deadline::after_seconds(20));
    if (!group.ok()) return 2;
    for (int turn = 0; turn < 20; ++turn) {
      if (reduce_and_check(**group, mine, engine.rank(), 1000) != 0) return 1;
      if (reduce_and_check(engine.world(), {0, 1, 2, 3}, engine.rank(), 70000) != 0) return 1;
    }
    return 0;
  });
  ASSERT_TRUE(job.ok()) << job.status();
  expect_all_zero(**job);
}

TEST(Engine, AsynchronousOperationsRunInOrderAndCallBack) {
  auto job = Job::start({.ranks = 3}, [](group::Engine& engine) {
    constexpr int kOperations = 50;
    std::vector<std::vector<float>> values(kOperations, std::vector<float>(2000, 1));
    std::vector<group::RequestHandle> requests;
    std::atomic<int> called{0};
    for (auto& one : values) {
      auto request = engine.world().submit(allreduce_of(one.size()), bytes_of(one), bytes_of(one), Deadline::never(),
                                           [&](const Status& status) { called += status.ok() ? 1 : 1000; });
      if (!request.ok()) return 2;
      requests.push_back(*request);
    }
    for (auto& request : requests) {
      if (!request->wait(Deadline::after_seconds(20)).ok()) return 3;
    }
    for (auto& one : values) {
      if (one != std::vector<float>(2000, 3)) return 4;
    }
    return called == kOperations ? 0 : 5;
  });
  ASSERT_TRUE(job.ok()) << job.status();
  expect_all_zero(**job);
}

TEST(Engine, SeveralThreadsMayCallOneGroup) {
  auto job = Job::start({.ranks = 2}, [](group::Engine& engine) {
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        for (int turn = 0; turn < 100; ++turn) wrong += reduce_and_check(engine.world(), {0, 1}, engine.rank(), 3000);
      });
    }
    for (auto& thread : threads) thread.join();
    return wrong.load();
  });
  ASSERT_TRUE(job.ok()) << job.status();
  expect_all_zero(**job);
}

TEST(Engine, OneMemberSendsToAnother) {
  for (const char* transport : {"auto", "tcp"}) {
    JobOptions options{.ranks = 3, .environment = {{"HORO_TRANSPORT", transport}, {"HORO_INTERFACE", "127.0.0.1"}}};
    auto job = Job::start(options, [](group::Engine& engine) {
      for (uint64_t count : {1, 1000, 500000}) {
        Operation operation = allreduce_of(count);
        operation.kind = Kind::kSendRecv;
        operation.root = 2;
        operation.target = 0;
        std::vector<float> values(count, static_cast<float>(engine.rank()));
        Status status = engine.world().run(operation, bytes_of(values), bytes_of(values));
        const float expected = engine.rank() == 0 ? 2 : static_cast<float>(engine.rank());
        if (!status.ok() || values != std::vector<float>(count, expected)) return 1;
      }
      return 0;
    });
    ASSERT_TRUE(job.ok()) << job.status();
    expect_all_zero(**job);
  }
}

TEST(Engine, GroupsThatEndGiveTheirMemoryBack) {
  auto job = Job::start({.ranks = 2}, [](group::Engine& engine) {
    std::set<uint64_t> places;
    for (int turn = 0; turn < 40; ++turn) {
      auto group = engine.create_group({0, 1}, Deadline::after_seconds(20));
      if (!group.ok()) return 2;
      if (reduce_and_check(**group, {0, 1}, engine.rank(), 300000) != 0) return 1;
      engine.remove_group(*group);
      auto buffer = engine.allocate(4096);  // Lies behind what is in use.
      if (!buffer.ok()) return 3;
      places.insert(reinterpret_cast<uint64_t>(buffer->data()) >> 28);
      engine.free(buffer->data());
    }
    return places.size() <= 4 ? 0 : 4;
  });
  ASSERT_TRUE(job.ok()) << job.status();
  expect_all_zero(**job);
}

constexpr int kVictim = 2;

/// Contributions 16^rank: a missing or double share shows in one digit.
void survive_a_kill(const JobOptions& options, uint64_t count, bool last_may_be_lost) {
  auto job = Job::start(options, [count](group::Engine& engine) {
    const uint64_t mine = uint64_t{1} << (4 * engine.rank());
    uint64_t expected = 0;
    for (int rank = 0; rank < engine.size(); ++rank) expected |= uint64_t{1} << (4 * rank);
    std::vector<uint64_t> values(count);
    for (uint64_t turn = 0;; ++turn) {
      if (engine.rank() == kVictim && turn == 20) raise(SIGKILL);
      std::fill(values.begin(), values.end(), mine);
      Status status = engine.world().run(allreduce_of(count, DType::kU64), bytes_of(values), bytes_of(values));
      if (status.ok()) {
        if (values != std::vector<uint64_t>(count, expected)) return 3;
        continue;
      }
      if (values != std::vector<uint64_t>(count, mine)) return 4;
      tell(text(status.to_string(), " #", status.operation().value_or(0)));
      if (status.code() != Code::kPeerLost || status.lost() != std::vector<int>{kVictim}) return 5;
      const std::vector<int> rest = engine.members();
      if (rest != std::vector<int>{0, 1, 3}) return 7;
      auto group = engine.create_group(rest, Deadline::after_seconds(10));
      if (!group.ok()) {
        tell(group.status().to_string());
        return 6;
      }
      return reduce_and_check(**group, rest, engine.rank(), 1000);
    }
  });
  ASSERT_TRUE(job.ok()) << job.status();
  auto codes = (*job)->wait(Deadline::after_seconds(60));
  ASSERT_TRUE(codes.ok()) << codes.status();
  // The victim made 20 operations. What it sent of the last one may have died with it; then all survivors fail that
  // one.
  std::set<std::string> failed;
  for (int rank = 0; rank < options.ranks; ++rank) {
    const std::string words = (*job)->told(rank);
    if (rank == kVictim) {
      EXPECT_EQ((*codes)[static_cast<size_t>(rank)], -SIGKILL);
    } else {
      EXPECT_EQ((*codes)[static_cast<size_t>(rank)], 0) << "rank " << rank << ": " << words;
      failed.insert(words.substr(words.find('#')));
    }
  }
  ASSERT_EQ(failed.size(), 1u) << "survivors failed at different operations";
  EXPECT_TRUE(*failed.begin() == "#21" || (*failed.begin() == "#20" && last_may_be_lost)) << *failed.begin();
}

TEST(Kill, InSharedMemorySurvivorsFailAlikeKeepTheirInputsAndGoOn) {
  for (uint64_t count : {1, 500, 400000}) survive_a_kill({.ranks = 4}, count, false);
}

TEST(Kill, OverSocketsSurvivorsFailAlikeKeepTheirInputsAndGoOn) {
  JobOptions options{.ranks = 4, .environment = {{"HORO_TRANSPORT", "tcp"}, {"HORO_INTERFACE", "127.0.0.1"}}};
  for (uint64_t count : {1, 500, 400000}) survive_a_kill(options, count, true);
}

}  // namespace
}  // namespace horo::test
