// Ranks that run out of memory in the midst of a job: the operation fails on all members, and the group goes on.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/job.h"
#include "tests/workload.h"

#include "horo/base/text.h"

namespace horo::test {
namespace {

using collective::Kind;
using collective::Operation;

constexpr uint64_t kCount = 16 << 20;  // 64 MiB: more than malloc() ever has at hand.

Operation sum_of(uint64_t count, double prescale = 1.0) {
  Operation operation;
  operation.kind = Kind::kAllreduce;
  operation.dtype = DType::kF32;
  operation.count = count;
  operation.prescale = prescale;
  return operation;
}

/// While it lives, this process gets hardly any more memory.
class Scarcity {
 public:
  Scarcity() {
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlimit none{pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + (4 << 20), RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &none);
  }
  ~Scarcity() {
    const rlimit all{RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &all);
  }
  Scarcity(const Scarcity&) = delete;
  Scarcity& operator=(const Scarcity&) = delete;
};

/// Runs one operation; empty if it ended with `code` and, in success, with `value` everywhere.
std::string differs(group::Group& group, const Operation& operation, std::vector<float>& data, Code code, float value) {
  auto* const bytes = reinterpret_cast<std::byte*>(data.data());
  const Status status = group.run(operation, bytes, bytes, Deadline::after_seconds(20));
  if (status.code() != code) return status.ok() ? "success" : status.to_string();
  return !status.ok() || (data.front() == value && data.back() == value) ? "" : text("a sum of ", data.front());
}

/// "ab": two hosts of one rank each. Rank 1 has no memory for the second operation.
void expect_failure_on_all(const std::string& hosts, double prescale) {
  SCOPED_TRACE(text(hosts, ", prescale ", prescale));
  JobOptions options{.ranks = static_cast<int>(hosts.size()), .environment = {{"HORO_INTERFACE", "127.0.0.1"}}};
  options.per_rank = [hosts](int rank) {
    return std::map<std::string, std::string, std::less<>>{
        {"HORO_HOST_ID", std::string(1, hosts[static_cast<size_t>(rank)])}};
  };
  auto job = Job::start(options, [&](group::Engine& engine) {
    group::Group& world = engine.world();
    std::vector<float> data(kCount, 1.0F), small(16, 1.0F);
    const auto members = static_cast<float>(world.size());
    const auto times = static_cast<float>(prescale);
    tell(differs(world, sum_of(small.size(), prescale), small, Code::kOk, members * times));
    {
      std::optional<Scarcity> scarcity;
      if (engine.rank() == 1) scarcity.emplace();
      tell(differs(world, sum_of(kCount, prescale), data, Code::kUnavailable, 0));
    }
    if (data != std::vector<float>(kCount, 1.0F)) tell("the input has changed");
    for (float value : {3.0F, 5.0F, 7.0F}) {
      data.assign(kCount, value);
      tell(differs(world, sum_of(kCount, prescale), data, Code::kOk, value * members * times));
    }
    return 0;
  });
  ASSERT_TRUE(job.ok()) << job.status();
  auto codes = (*job)->wait(Deadline::after_seconds(60));
  ASSERT_TRUE(codes.ok()) << codes.status();
  for (int rank = 0; rank < options.ranks; ++rank) EXPECT_EQ((*job)->told(rank), "") << "rank " << rank;
}

TEST(Memory, WithoutItOnOneRankAnOperationFailsOnAllAndTheGroupGoesOn) {
  if (sanitized()) GTEST_SKIP() << "the sanitizer's allocator ends the process when there is no memory";
  expect_failure_on_all("ab", 1.0);
  expect_failure_on_all("aab", 2.0);
}

TEST(Memory, AnOperationThatNobodyHasRoomForChangesNothingForTheNext) {
  if (sanitized()) GTEST_SKIP() << "the sanitizer's allocator ends the process when there is no memory";
  for (const bool queued : {false, true}) {
    auto job = Job::start({.ranks = 2, .environment = {{"HORO_TRANSPORT", "tcp"}}}, [&](group::Engine& engine) {
      group::Group& world = engine.world();
      std::vector<float> data(16, 1.0F);
      auto* const bytes = reinterpret_cast<std::byte*>(data.data());
      tell(differs(world, sum_of(16), data, Code::kOk, 2));
      const Operation huge = sum_of(uint64_t{1} << 50);
      Status status;
      if (queued) {
        auto request = world.submit(huge, bytes, bytes);
        status = request.ok() ? (*request)->wait(Deadline::after_seconds(20)) : request.status();
      } else {
        status = world.run(huge, bytes, bytes);
      }
      if (status.code() != Code::kUnavailable) tell(status.to_string());
      for (int turn = 0; turn < 3; ++turn) {
        data.assign(16, 1.0F);
        tell(differs(world, sum_of(16), data, Code::kOk, 2));
      }
      return 0;
    });
    ASSERT_TRUE(job.ok()) << job.status();
    auto codes = (*job)->wait(Deadline::after_seconds(60));
    ASSERT_TRUE(codes.ok() && *codes == (std::vector<int>{0, 0})) << (*job)->told(0) << (*job)->told(1);
    for (int rank : {0, 1}) EXPECT_EQ((*job)->told(rank), "") << "rank " << rank;
  }
}

}  // namespace
}  // namespace horo::test
