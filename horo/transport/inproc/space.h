// Ranks as threads of one process: the shared memory is the heap.
#pragma once

#include <memory>
#include <vector>

#include "horo/transport/process.h"
#include "horo/transport/space.h"

namespace horo::transport::inproc {

/// The memory of a group of threads. Must outlive the spaces it hands out. What is behind staging in a segment is its
/// member's buffers.
class Fabric : public Buffers {
 public:
  Fabric(int size, size_t segment_bytes);
  ~Fabric() override;

  /// Member `rank`'s view; staging is the first `staging_bytes` of its segment.
  Space space(int rank, size_t staging_bytes);
  std::span<std::byte> segment(int rank) { return {segments_[static_cast<size_t>(rank)].get(), segment_bytes_}; }
  bool shows(const std::byte* memory, size_t bytes) const override;
  /// Threads see the same memory at the same place, so that nothing can be taken away from one: callers leave alone
  /// what was in an operation that failed.
  void withdraw(std::span<std::byte>) override {}
  /// As if the process of `rank` were killed now.
  void kill(int rank) { lives_[static_cast<size_t>(rank)].end(); }

 private:
  struct AlignedDelete {
    void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{4096}); }
  };
  using Memory = std::unique_ptr<std::byte[], AlignedDelete>;

  const int size_;
  const size_t segment_bytes_;
  Memory page_;
  std::vector<Memory> segments_;
  std::vector<Life> lives_;
  const Process::Proof proof_{};
  const Process process_;  ///< This one, which all members are threads of.
};

}  // namespace horo::transport::inproc
