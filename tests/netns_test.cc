// Network namespaces as hosts: what shares a machine is not one host, and a link that goes down is noticed. Needs root.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tests/job.h"
#include "tests/two_hosts.h"
#include "tests/workload.h"

#include "horo/base/text.h"

namespace horo::test {
namespace {

using collective::Kind;
using collective::Operation;

/// Ranks 0, 1 on one host, 2, 3 on the other; the store on the first.
JobOptions on_two_hosts(const TwoHosts& hosts) {
  JobOptions options{.ranks = 4, .environment = {{"HORO_FREEZE_TIMEOUT", "1s"}, {"HORO_TIMEOUT", "10s"}}};
  options.enter = [&hosts](int rank) { return hosts.enter(rank < 2 ? 0 : 1); };
  options.store_at = "10.77.0.1:0";
  return options;
}

TEST(Namespaces, OfOneMachineAreDifferentHosts) {
  TwoHosts hosts;
  if (!hosts.made()) GTEST_SKIP() << "network namespaces cannot be made here (needs root and the ip program)";
  auto job = Job::start(on_two_hosts(hosts), [](group::Engine& engine) {
    if (engine.world().transport_name() != "shm+tcp") return 3;
    if (engine.local_ranks().size() != 2) return 4;
    auto near = engine.create_group(engine.local_ranks(), Deadline::after_seconds(10));
    if (!near.ok()) return 5;
    if ((*near)->transport_name() != "shm") return 6;
    for (uint64_t count : {1, 1000, 300'000}) {
      if (!sum_works(engine.world(), count) || !sum_works(**near, count)) return 7;
    }
    return 0;
  });
  ASSERT_TRUE(job.ok()) << job.status();
  auto codes = (*job)->wait(Deadline::after_seconds(30));
  ASSERT_TRUE(codes.ok()) << codes.status();
  EXPECT_EQ(*codes, std::vector<int>(4, 0)) << (*job)->told(0);
}

TEST(Namespaces, ALinkThatGoesDownIsNoticedAndNobodyHangs) {
  TwoHosts hosts;
  if (!hosts.made()) GTEST_SKIP() << "network namespaces cannot be made here (needs root and the ip program)";
  auto job = Job::start(on_two_hosts(hosts), [](group::Engine& engine) {
    if (!sum_works(engine.world(), 1000)) return 3;
    tell("ready\n");
    Operation operation;
    operation.kind = Kind::kAllreduce;
    operation.dtype = DType::kU64;
    operation.count = 50'000;
    std::vector<uint64_t> values(operation.count, 1);
    auto* bytes = reinterpret_cast<std::byte*>(values.data());
    while (true) {
      std::fill(values.begin(), values.end(), 1);
      const Status status = engine.world().run(operation, bytes, bytes);
      if (status.ok()) continue;
      tell(text(status.to_string(), "\n"));
      if (values != std::vector<uint64_t>(operation.count, 1)) return 4;
      return status.code() == Code::kPeerLost || status.code() == Code::kEvicted ? 0 : 5;
    }
  });
  ASSERT_TRUE(job.ok()) << job.status();
  for (int rank = 0; rank < 4; ++rank) ASSERT_TRUE((*job)->next_line(rank, Deadline::after_seconds(20)).ok());
  const Time cut = Clock::now();
  ASSERT_TRUE(hosts.cut());
  auto codes = (*job)->wait(Deadline::after_seconds(30));
  ASSERT_TRUE(codes.ok()) << codes.status();
  std::printf("  everybody has ended %.1f s after the link went down\n",
              std::chrono::duration<double>(Clock::now() - cut).count());
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ((*codes)[static_cast<size_t>(rank)], 0) << (*job)->told(rank);
}

TEST(Namespaces, ASmallDevShmDoesNotMatter) {
  JobOptions options{.ranks = 2};
  options.enter = [](int) {
    return unshare(CLONE_NEWNS) == 0 && mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=64k") == 0;
  };
  if (geteuid() != 0) GTEST_SKIP() << "mounting needs root";
  auto job = Job::start(options, [](group::Engine& engine) {
    if (engine.world().transport_name() != "shm") return 3;
    return sum_works(engine.world(), 4'000'000) ? 0 : 4;
  });
  ASSERT_TRUE(job.ok()) << job.status();
  auto codes = (*job)->wait(Deadline::after_seconds(30));
  ASSERT_TRUE(codes.ok()) << codes.status();
  if (*codes == std::vector<int>(2, 89)) GTEST_SKIP() << "mount namespaces cannot be made here";
  EXPECT_EQ(*codes, std::vector<int>(2, 0));
}

}  // namespace
}  // namespace horo::test
