// A rank's own shared memory: areas of its segment, callers' buffers, and the control pages it hosts.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <span>

#include "horo/base/ranges.h"
#include "horo/base/status.h"
#include "horo/group/bell.h"
#include "horo/transport/life.h"
#include "horo/transport/page.h"
#include "horo/transport/process.h"
#include "horo/transport/shm/segment.h"
#include "horo/transport/space.h"

namespace horo::group {

/// What stands at the beginning of a rank's control region, which its peers on the host map for writing.
struct RegionHeader {
  transport::Life life;
  /// Proves to a peer that it mapped the very memory that was passed to it, and that it reads this process.
  transport::Process::Proof nonce;
  BellWord bell;  ///< Wakes the rank's loop.
};

/// Thread-safe. Segments are address space for everything the rank may ever share; memory is taken as it is used. What
/// is given back returns to the system at once.
class Memory : public transport::Buffers {
 public:
  static Result<std::unique_ptr<Memory>> create(int rank);

  static constexpr uint64_t kRegionBytes = uint64_t{4} << 20;
  /// Where the page of the first group lies: by convention, so that it needs no message. Control pages are not pages
  /// of the machine, which may be larger.
  static constexpr uint64_t kFirstPage = 4096;

  RegionHeader& header() const { return *reinterpret_cast<RegionHeader*>(region_.memory().data()); }
  const transport::shm::Segment& segment() const { return segment_; }
  const transport::shm::Segment& buffers() const { return buffers_; }
  const transport::shm::Segment& region() const { return region_; }

  /// An area of address space in the segment, which only this rank writes.
  Result<std::span<std::byte>> take_area(uint64_t bytes);
  void free_area(std::byte* memory);
  /// Real memory for a caller, among the buffers.
  Result<std::span<std::byte>> allocate(uint64_t bytes);
  void free(std::byte* memory);
  bool shows(const std::byte* memory, size_t bytes) const override;
  void withdraw(std::span<std::byte> pages) override;
  /// Makes the first `bytes` of an area real.
  Status commit(std::span<std::byte> area, uint64_t bytes, uint64_t already) const;
  uint64_t offset(const std::byte* memory) const { return static_cast<uint64_t>(memory - segment_.memory().data()); }

  /// A zeroed control page for a group led by this rank.
  Result<uint64_t> take_page(int members);
  void free_page(uint64_t offset);

 private:
  Memory(transport::shm::Segment segment, transport::shm::Segment buffers, transport::shm::Segment region);
  uint64_t offset_in_buffers(const std::byte* memory) const {
    return static_cast<uint64_t>(memory - buffers_.memory().data());
  }

  const transport::shm::Segment segment_;
  const transport::shm::Segment buffers_;
  const transport::shm::Segment region_;
  mutable std::mutex mutex_;
  Ranges areas_;
  Ranges lent_;
  /// Buffers of which something was withdrawn. They stay taken when they are freed: an evicted rank that wakes up may
  /// still write to what was there.
  std::set<uint64_t> withdrawn_;
  std::atomic<bool> any_withdrawn_ = false;
  Ranges pages_;
};

}  // namespace horo::group
