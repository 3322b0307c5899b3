// What DeviceOperations keeps for one device, and for one operation. Included by its sources alone.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "horo/group/device_operations.h"

namespace horo::group {

inline bool overlap(const std::byte* a, uint64_t a_bytes, const std::byte* b, uint64_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

struct DeviceOperations::Lane {
  Lane(device::Devices& all, std::unique_ptr<device::Queue> opened) : devices(all), queue(std::move(opened)) {}
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// At least `bytes` of memory that was exported. What it replaces stays until the end: peers have it mapped.
  Status ensure_window(uint64_t bytes);
  /// At least `bytes` of pinned memory of the host.
  Status ensure_pinned(uint64_t bytes);

  device::Devices& devices;
  std::unique_ptr<device::Queue> queue;
  std::optional<device::Exported> window;
  std::vector<device::Exported> old_windows;
  std::byte* pinned = nullptr;
  uint64_t pinned_bytes = 0;
  std::set<uint64_t> told;                                ///< Numbers of own memory that all members have mapped.
  std::map<std::pair<int, uint64_t>, std::byte*> mapped;  ///< By member and its number.
};

/// What each member runs, and where.
struct DeviceOperations::Arrival {
  transport::Signature signature;
  int32_t device = 0;
  uint32_t reserved = 0;
};

struct DeviceOperations::Fabric {
  std::unique_ptr<device::Communicator> communicator;
};

struct DeviceOperations::Record {
  Arrival arrival;
  uint64_t id = 0;  ///< Of what was exported; 0: nothing to be read.
  uint64_t offset = 0;
  uint32_t is_new = 0;  ///< The others have not mapped it yet.
  uint32_t failed = 0;  ///< This member cannot take this way.
};

struct DeviceOperations::Call {
  const collective::Operation& operation;
  const std::byte* in;
  std::byte* out;
  const OnHost& run_on_host;
  Deadline deadline;
  bool may_spin;
  Lane* lane = nullptr;
  std::vector<uint64_t> splits;  ///< Of an alltoall: what each member sends to each, then what it expects of each.
  bool host_failed = false;      ///< Then all members have failed.
  bool touched = false;          ///< The output has been written, at least in part.

  size_t element() const { return size_of(operation.dtype); }
  Status on_host(const collective::Operation& small, const void* from, void* to);
  /// What every member gives, in their order.
  template <class T>
  Status gather(const T& mine, std::vector<T>& all) {
    collective::Operation gathering;
    gathering.kind = collective::Kind::kAllgather;
    gathering.dtype = DType::kByte;
    gathering.counts.assign(all.size(), sizeof(T));
    return on_host(gathering, &mine, all.data());
  }
  /// Whether any member says so.
  Result<bool> any(bool mine);
  Arrival arrival() const;
  Status barrier() { return on_host({}, nullptr, nullptr); }
  Status finish() const { return lane->queue->finish(may_spin); }
};

}  // namespace horo::group
