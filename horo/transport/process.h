// The memory that a process of this host keeps for itself, read where it is.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace horo::transport {

/// A process of the same user that this one may look into, if the system lets it (process_vm_readv): the kernel copies
/// from one to the other, once.
class Process {
 public:
  /// What lies at one place in that process and in no other.
  using Proof = std::array<std::byte, 16>;

  Process(int id, uint64_t proof_at, const Proof& proof) : id_(id), proof_at_(proof_at), proof_(proof) {}

  /// Fills `to` with what lies at `from` there, whoever writes to it meanwhile. Zero, or the reason as errno has it:
  /// ESRCH where it has ended, and where another one has its number now.
  int read(std::span<std::byte> to, uint64_t from) const;
  /// Zero if this process may read that one's memory, else why not, as errno has it.
  int try_to_read() const { return read({}, 0); }

 private:
  int id_;
  uint64_t proof_at_;
  Proof proof_;
};

/// Whether those whom the system lets can read `memory` of this process: not what a device has mapped there, say.
bool can_be_read(std::span<const std::byte> memory);

}  // namespace horo::transport
