#include "horo/base/system.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

#include "horo/base/cgroup.h"

namespace horo {
namespace {

namespace fs = std::filesystem;

constexpr char kV2Mount[] = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
constexpr char kV1Mounts[] =
    "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

// A folder that plays the part of "/".
class SystemTest : public testing::Test {
 protected:
  SystemTest() {
    std::string pattern = (fs::temp_directory_path() / "horo-system-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    write("proc/meminfo", "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    600 kB\n");
  }
  ~SystemTest() override { fs::remove_all(root_); }

  void write(const fs::path& path, std::string_view contents) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << contents;
  }
  System system() const { return System(root_); }

  fs::path root_;
};

TEST_F(SystemTest, WithoutACgroupTheMachineIsTheLimit) {
  auto memory = system().memory();
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->limit, 1000u * 1024);
  EXPECT_EQ(memory->used, 400u * 1024);
  EXPECT_EQ(memory->available(), 600u * 1024);
  EXPECT_EQ(system().cpu_quota(), std::nullopt);
  EXPECT_GE(system().usable_cores(), 1);
}

TEST_F(SystemTest, WithoutAnyFileMemoryIsAnError) {
  fs::remove(root_ / "proc/meminfo");
  auto memory = system().memory();
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.status().code(), Code::kNotFound);
}

TEST_F(SystemTest, ACgroupOfVersion2Limits) {
  write("proc/self/mountinfo", kV2Mount);
  write("proc/self/cgroup", "0::/job/step\n");
  write("sys/fs/cgroup/job/step/memory.max", "200000\n");
  write("sys/fs/cgroup/job/step/memory.current", "150000\n");
  write("sys/fs/cgroup/job/step/memory.stat", "anon 100\ninactive_file 50000\n");
  write("sys/fs/cgroup/job/step/cpu.max", "150000 100000\n");
  auto memory = system().memory();
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->limit, 200000u);
  EXPECT_EQ(memory->used, 100000u);
  EXPECT_EQ(system().cpu_quota(), 1.5);
  EXPECT_LE(system().usable_cores(), 2);
}

TEST_F(SystemTest, ALimitFurtherUpCountsToo) {
  write("proc/self/mountinfo", kV2Mount);
  write("proc/self/cgroup", "0::/job/step\n");
  write("sys/fs/cgroup/job/step/memory.max", "max\n");
  write("sys/fs/cgroup/job/step/memory.current", "10\n");
  write("sys/fs/cgroup/job/step/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/job/memory.max", "5000\n");
  write("sys/fs/cgroup/job/memory.current", "6000\n");
  write("sys/fs/cgroup/job/cpu.max", "50000 100000\n");
  auto memory = system().memory();
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->limit, 5000u);
  EXPECT_EQ(memory->available(), 0u);
  EXPECT_EQ(system().cpu_quota(), 0.5);
  EXPECT_EQ(system().usable_cores(), 1);
}

TEST_F(SystemTest, ACgroupOfVersion1Limits) {
  write("proc/self/mountinfo", kV1Mounts);
  write("proc/self/cgroup", "4:memory:/job\n1:cpu,cpuacct:/\n0::/\n");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "300000\n");
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "120000\n");
  write("sys/fs/cgroup/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 20000\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  auto memory = system().memory();
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->limit, 300000u);
  EXPECT_EQ(memory->used, 100000u);
  EXPECT_EQ(system().cpu_quota(), 4.0);
}

TEST_F(SystemTest, AQuotaOfMinusOneIsNone) {
  write("proc/self/mountinfo", kV1Mounts);
  write("proc/self/cgroup", "1:cpu,cpuacct:/\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(system().cpu_quota(), std::nullopt);
}

TEST_F(SystemTest, APathToldFromOutsideTheContainerFallsBackToTheMount) {
  write("proc/self/mountinfo", "30 23 0:26 /docker/ab /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  write("sys/fs/cgroup/memory.max", "7000\n");
  write("sys/fs/cgroup/memory.current", "0\n");
  for (const char* path : {"/docker/ab", "/docker/abc", "/elsewhere", "/../..", "/docker/ab/gone"}) {
    write("proc/self/cgroup", std::string("0::") + path + "\n");
    auto cgroup = find_cgroup(root_, "memory");
    ASSERT_TRUE(cgroup.has_value()) << path;
    EXPECT_EQ(cgroup->levels, std::vector<fs::path>{root_ / "sys/fs/cgroup"}) << path;
    auto memory = system().memory();
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ(memory->limit, 7000u) << path;
  }
}

TEST_F(SystemTest, MalformedFilesLimitNothing) {
  write("proc/self/mountinfo", "\nx - y\n30 23\n" + std::string(kV2Mount));
  write("proc/self/cgroup", "junk\n0:\n0::/\n");
  write("sys/fs/cgroup/memory.max", "lots\n");
  write("sys/fs/cgroup/memory.current", "\n");
  write("sys/fs/cgroup/cpu.max", "0 0\n");
  auto memory = system().memory();
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->limit, 1000u * 1024);
  EXPECT_EQ(system().cpu_quota(), std::nullopt);
}

TEST_F(SystemTest, IdentityIsReadFromProc) {
  EXPECT_EQ(system().boot_id().status().code(), Code::kNotFound);
  EXPECT_EQ(system().network_namespace().status().code(), Code::kNotFound);
  write("proc/sys/kernel/random/boot_id", "c0ffee\n");
  fs::create_directories(root_ / "proc/self/ns");
  fs::create_symlink("net:[4026531840]", root_ / "proc/self/ns/net");
  EXPECT_EQ(*system().boot_id(), "c0ffee");
  EXPECT_EQ(*system().network_namespace(), 4026531840u);
  EXPECT_EQ(system().time_namespace(), "") << "older kernels have none";
  fs::create_symlink("time:[4026531834]", root_ / "proc/self/ns/time");
  EXPECT_EQ(system().time_namespace(), "time:[4026531834]");
}

TEST(System, ThisMachineHasAnIdentityAndMemory) {
  System system;
  auto memory = system.memory();
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_GT(memory->available(), 1u << 20);
  EXPECT_TRUE(system.boot_id().ok()) << system.boot_id().status();
  EXPECT_TRUE(system.network_namespace().ok()) << system.network_namespace().status();
  EXPECT_FALSE(host_name().empty());
  EXPECT_GE(page_size(), 4096u);
}

}  // namespace
}  // namespace horo
