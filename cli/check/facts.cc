#include "cli/check/facts.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cli/table.h"

#include "horo/base/cgroup.h"
#include "horo/base/system.h"
#include "horo/base/text.h"
#include "horo/collective/algorithm.h"
#include "horo/kernel/reduce.h"
#include "horo/net/address.h"
#include "horo/net/fd.h"

namespace horo::cli {

namespace {

Fact cores() {
  const System system;
  const auto quota = system.cpu_quota();
  return {"cores",
          quota ? text(system.usable_cores(), " (the cgroup allows ", *quota, ")") : text(system.usable_cores()),
          system.usable_cores() > 1 ? "" : "several ranks will take turns on one core"};
}

Fact memory() {
  const auto memory = System().memory();
  if (!memory.ok()) return {"memory", "unknown", memory.status().message()};
  return {"memory", text(bytes_text(memory->available()), " left of ", bytes_text(memory->limit)), ""};
}

Fact sealed_memory() {
  const net::UniqueFd fd(memfd_create("horo-check", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  constexpr int kSeals = F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (fd.valid() && ftruncate(fd.get(), 4096) == 0 && fcntl(fd.get(), F_ADD_SEALS, kSeals) == 0) {
    return {"sealed shared memory", "yes", ""};
  }
  return {"sealed shared memory", text("no: ", std::strerror(errno)), "ranks of this host will talk through sockets"};
}

/// A call with nothing to do tells whether it exists: any error but ENOSYS and EPERM means that it does.
Fact system_call(const std::string& name, long outcome, const std::string& advice) {
  const bool there = outcome >= 0 || (errno != ENOSYS && errno != EPERM);
  return {name, there ? "yes" : text("no: ", std::strerror(errno)), there ? "" : advice};
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
  return {"huge pages", text("memory ", chosen(folder + "enabled"), ", shared memory ", shared),
          used ? "" : text("'echo advise > ", folder, "shmem_enabled' makes large operations faster")};
}

Fact instruction_sets() {
  std::string list;
  for (kernel::Isa isa : kernel::available()) list += text(list.empty() ? "" : ", ", name(isa));
  return {"instruction sets", text(list, " (", name(kernel::best()), " is used)"), ""};
}

std::vector<Fact> networks() {
  const auto all = net::interfaces();
  if (!all.ok()) return {{"interfaces", "unknown", all.status().message()}};
  std::vector<Fact> facts;
  for (const net::Interface& one : *all) {
    std::string address = one.address.to_string();
    address = address.substr(0, address.rfind(':'));
    facts.push_back({facts.empty() ? "interfaces" : "", text(one.name, " ", address), ""});
  }
  return facts;
}

}  // namespace

std::vector<Fact> facts_of_this_machine() {
  std::vector<Fact> facts{cores(), memory(),     sealed_memory(),    futex_waitv(),
                          pidfd(), huge_pages(), instruction_sets(), {"TLS", OpenSSL_version(OPENSSL_VERSION), ""}};
  for (Fact& fact : networks()) facts.push_back(std::move(fact));
  return facts;
}

std::string algorithms_text(bool colours) {
  Table table({"algorithm", "order of sums", "operations"});
  for (size_t column : {0, 1, 2}) table.flush_left(column);
  table.add({"direct", std::string(name(collective::Order::kRank)), "all, between ranks that share memory"});
  // Two hosts of two: every algorithm does there what it can do at all.
  const collective::Shape shape({0, 0, 1, 1});
  for (const collective::Algorithm& algorithm : collective::registry()) {
    std::string kinds;
    for (int kind = 0; kind <= static_cast<int>(collective::Kind::kSendRecv); ++kind) {
      collective::Operation operation;
      operation.kind = static_cast<collective::Kind>(kind);
      operation.dtype = DType::kF32;
      operation.target = 1;
      operation.count = 4;
      operation.counts = operation.receive_counts = {1, 1, 1, 1};
      if (!algorithm.refusal(operation, shape).empty()) continue;
      kinds += text(kinds.empty() ? "" : ", ", name(operation.kind));
    }
    table.add({std::string(algorithm.name), std::string(name(algorithm.order)), kinds});
  }
  return table.to_string(colours) + "\nHORO_ALGORITHM=NAME forces one where it can do the operation.\n";
}

}  // namespace horo::cli
