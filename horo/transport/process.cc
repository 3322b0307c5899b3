#include "horo/transport/process.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

namespace horo::transport {

namespace {

// The kernel never writes through it.
iovec there(uint64_t address, size_t bytes) { return {reinterpret_cast<void*>(address), bytes}; }

}  // namespace

// The kernel holds on to the process's memory for the whole of a call, so the proof at its end tells whose memory all
// of it was.
int Process::read(std::span<std::byte> to, uint64_t from) const {
  Proof found{};
  const std::array<iovec, 2> here = {iovec{to.data(), to.size()}, iovec{found.data(), found.size()}};
  const std::array<iovec, 2> remote = {there(from, to.size()), there(proof_at_, found.size())};
  const ssize_t all = static_cast<ssize_t>(to.size() + found.size());
  const ssize_t got = process_vm_readv(id_, here.data(), here.size(), remote.data(), remote.size(), 0);
  if (got == all) return found == proof_ ? 0 : ESRCH;
  return got < 0 ? errno : EFAULT;
}

bool can_be_read(std::span<const std::byte> memory) {
  if (memory.empty()) return true;
  std::byte first{};
  const iovec here{&first, 1};
  const iovec remote = there(reinterpret_cast<uintptr_t>(memory.data()), 1);
  return process_vm_readv(getpid(), &here, 1, &remote, 1, 0) == 1;
}

}  // namespace horo::transport
