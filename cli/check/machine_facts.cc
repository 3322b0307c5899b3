// Cores, memory and the limits on them; what the kernel can do.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "cli/check/facts.h"

#include "horo/base/cgroup.h"
#include "horo/base/system.h"
#include "horo/base/text.h"
#include "horo/collective/direct/protocol.h"
#include "horo/kernel/reduce.h"
#include "horo/transport/process.h"

namespace horo::cli {

namespace {

constexpr const char* kMachine = "machine";
constexpr const char* kLimits = "limits";

/// "0-3,8": cores that this process may use.
std::string bound_to() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return "unknown";
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  std::string list;
  for (size_t i = 0; i < cores.size(); ++i) {
    size_t last = i;
    while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1) ++last;
    list += text(list.empty() ? "" : ",", cores[i], last > i ? text("-", cores[last]) : "");
    i = last;
  }
  return list;
}

Fact cores() {
  const System system;
  const auto quota = system.cpu_quota();
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  std::string value = text(system.usable_cores(), " of ", online, ", bound to ", bound_to());
  if (quota) value += text(" (the cgroup allows ", *quota, ")");
  if (system.usable_cores() > 1) return {kMachine, "cores", value};
  return {kMachine, "cores", value, Verdict::kNote, "several ranks will take turns on one core"};
}

Fact numa() {
  size_t nodes = 0;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/devices/system/node", none)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("node", 0) == 0 && name.find_first_not_of("0123456789", 4) == std::string::npos) ++nodes;
  }
  if (nodes == 0) return {kMachine, "NUMA nodes", "not told"};
  if (nodes == 1) return {kMachine, "NUMA nodes", "1"};
  return {kMachine, "NUMA nodes", text(nodes), Verdict::kNote, "bind ranks with numactl or taskset in the command"};
}

Fact memory() {
  const auto memory = System().memory();
  if (!memory.ok()) return {kMachine, "memory", "unknown", Verdict::kProblem, memory.status().message()};
  const std::string value = text(bytes_text(memory->available()), " left of ", bytes_text(memory->limit));
  constexpr uint64_t kTight = uint64_t{512} << 20;
  if (memory->available() >= kTight) return {kMachine, "memory", value};
  return {kMachine, "memory", value, Verdict::kNote, "lower HORO_STAGING (256 MiB per rank where it is needed)"};
}

/// A call with nothing to do tells whether it exists: any error but ENOSYS and EPERM means that it does.
Fact system_call(const std::string& name, long outcome, const std::string& advice) {
  const bool there = outcome >= 0 || (errno != ENOSYS && errno != EPERM);
  if (there) return {kMachine, name, "yes"};
  return {kMachine, name, text("no: ", std::strerror(errno)), Verdict::kNote, advice};
}

Fact futex_waitv() {
  constexpr long kFutexWaitv = 449;  // The same number on every architecture; older headers lack its name.
  return system_call("futex_waitv", syscall(kFutexWaitv, nullptr, 0, 0, nullptr, 0),
                     "sleeping ranks wake up now and then to look for failures");
}

Fact pidfd() {
  const long fd = syscall(SYS_pidfd_open, getpid(), 0);
  Fact fact = system_call("pidfd", fd, "a dead rank is noticed by other means");
  if (fd >= 0) close(static_cast<int>(fd));
  return fact;
}

/// A rank is no ancestor of another, which is what systems make a difference of; nor is a child of this process.
Fact reading_peers() {
  const std::string name = "reading of peers", advice = "a large alltoall or allgather takes one copy more";
  if (collective::direct::kReads == 0) return {kMachine, name, "not on this processor"};
  const transport::Process::Proof proof{std::byte{1}};
  const transport::Process parent(getpid(), reinterpret_cast<uintptr_t>(proof.data()), proof);
  const pid_t child = fork();
  if (child == 0) _exit(parent.try_to_read());
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return {kMachine, name, "unknown", Verdict::kNote, advice};
  if (WIFSIGNALED(status)) {
    return {kMachine, name, "no: a filter of system calls ends who tries", Verdict::kProblem, "set HORO_READ_PEERS=0"};
  }
  if (WEXITSTATUS(status) == 0) return {kMachine, name, "yes"};
  return {kMachine, name, text("no: ", std::strerror(WEXITSTATUS(status))), Verdict::kNote,
          advice + "; with Yama, kernel.yama.ptrace_scope=0 permits it, to all programs of a user"};
}

/// "always [madvise] never": the chosen word.
std::string chosen(const std::string& file) {
  const std::string line = read_small_file(file).value_or("[unknown]");
  const size_t from = line.find('['), to = line.find(']');
  return from == std::string::npos || to == std::string::npos ? line : line.substr(from + 1, to - from - 1);
}

Fact huge_pages() {
  const std::string folder = "/sys/kernel/mm/transparent_hugepage/";
  const std::string shared = chosen(folder + "shmem_enabled");
  const bool used = shared == "always" || shared == "advise" || shared == "within_size" || shared == "force";
  const std::string value = text("memory ", chosen(folder + "enabled"), ", shared memory ", shared);
  if (used) return {kMachine, "huge pages", value};
  return {kMachine, "huge pages", value, Verdict::kNote,
          text("'echo advise > ", folder, "shmem_enabled' makes large operations faster")};
}

Fact instruction_sets() {
  std::string list;
  for (kernel::Isa isa : kernel::available()) list += text(list.empty() ? "" : ", ", name(isa));
  return {kMachine, "instruction sets", text(list, " (", name(kernel::best()), " is used)")};
}

std::string limit_text(rlim_t value, bool bytes) {
  if (value == RLIM_INFINITY) return "unlimited";
  return bytes ? bytes_text(value) : text(value);
}

Fact locked_memory() {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  const std::string value = limit_text(limit.rlim_cur, true);
  if (limit.rlim_cur == RLIM_INFINITY) return {kLimits, "locked memory", value};
  return {kLimits, "locked memory", value + "; horo locks none itself"};
}

Fact open_files() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  constexpr rlim_t kEnough = 1024;
  const std::string value = limit_text(limit.rlim_cur, false);
  if (limit.rlim_cur >= kEnough) return {kLimits, "open files", value};
  return {kLimits, "open files", value, Verdict::kNote, "raise it (ulimit -n) for jobs of more than a few dozen ranks"};
}

Fact dev_shm() {
  struct statvfs found {};
  if (statvfs("/dev/shm", &found) != 0) return {kLimits, "/dev/shm", "none; horo does not need it"};
  const uint64_t size = uint64_t{found.f_blocks} * found.f_frsize, left = uint64_t{found.f_bavail} * found.f_frsize;
  return {kLimits, "/dev/shm", text(bytes_text(left), " left of ", bytes_text(size), "; horo does not need it")};
}

Fact processes() {
  rlimit limit{};
  getrlimit(RLIMIT_NPROC, &limit);
  constexpr rlim_t kEnough = 1024;
  const std::string value = limit_text(limit.rlim_cur, false);
  if (limit.rlim_cur >= kEnough) return {kLimits, "processes and threads", value};
  return {kLimits, "processes and threads", value, Verdict::kNote,
          "raise it (ulimit -u): a rank has about five threads"};
}

}  // namespace

Facts machine_facts() {
  return {cores(), numa(), memory(), futex_waitv(), pidfd(), reading_peers(), huge_pages(), instruction_sets()};
}

Facts limit_facts() { return {locked_memory(), open_files(), processes(), dev_shm()}; }

}  // namespace horo::cli
