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

#include "horo/base/text.h"

namespace horo::test {
namespace {

using collective::Kind;
using collective::Operation;

bool run(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

/// Two namespaces joined by a cable: 10.77.0.1 and 10.77.0.2, under names of this test's own.
class TwoHosts {
 public:
  TwoHosts() {
    const std::string id = std::to_string(getpid());
    for (int host = 0; host < 2; ++host) names_[host] = text("horo-", id, host == 0 ? "a" : "b");
    made_ = run("ip netns add " + names_[0]) && run("ip netns add " + names_[1]) &&
            run(text("ip link add v0 netns ", names_[0], " type veth peer name v0 netns ", names_[1]));
    for (int host = 0; made_ && host < 2; ++host) {
      const std::string in = text("ip -n ", names_[host], " ");
      made_ = run(text(in, "addr add 10.77.0.", host + 1, "/24 dev v0")) && run(in + "link set v0 up") &&
              run(in + "link set lo up");
    }
  }
  ~TwoHosts() {
    for (const std::string& name : names_) run("ip netns del " + name);
  }
  bool made() const { return made_; }
  void cut() const { EXPECT_TRUE(run(text("ip -n ", names_[0], " link set v0 down"))); }
  /// Moves the calling process to a host.
  bool enter(int host) const {
    const int fd = open(text("/run/netns/", names_[host]).c_str(), O_RDONLY | O_CLOEXEC);
    const bool entered = fd >= 0 && setns(fd, CLONE_NEWNET) == 0;
    if (fd >= 0) close(fd);
    return entered;
  }

 private:
  std::string names_[2];
  bool made_ = false;
};

bool sum_works(group::Group& group, uint64_t count) {
  Operation operation;
  operation.kind = Kind::kAllreduce;
  operation.dtype = DType::kU64;
  operation.count = count;
  std::vector<uint64_t> values(count, 1);
  auto* bytes = reinterpret_cast<std::byte*>(values.data());
  return group.run(operation, bytes, bytes, Deadline::after_seconds(20)).ok() &&
         values == std::vector<uint64_t>(count, static_cast<uint64_t>(group.size()));
}

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
  hosts.cut();
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
