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
  std::map<std::pair<int, uint64_t>, std::byte*> mapped;  ///< By member and its number.
};

/// What each member runs, and where.
struct DeviceOperations::Arrival {
  transport::Signature signature;
  int32_t device = 0;
  uint32_t may_fly = 0;  ///< This member need not wait for the end of an operation by the fabric.
};

struct DeviceOperations::Record {
  Arrival arrival;
  uint64_t id = 0;  ///< Of what was exported; 0: nothing to be read.
  uint64_t offset = 0;
  uint32_t failed = 0;    ///< This member cannot take this way.
  uint32_t may_hold = 0;  ///< This member can put all steps into its queue at once.
  uint32_t is_there = 0;  ///< Its data are where the others will read them, already.
};

struct DeviceOperations::Call {
  const collective::Operation& operation;
  const std::byte* in;
  std::byte* out;
  const OnHost& run_on_host;
  Deadline deadline;
  bool may_spin;
  const device::Sequel& sequel;
  Lane* lane = nullptr;
  std::vector<uint64_t> splits;  ///< Of an alltoall: what each member sends to each, then what it expects of each.
  bool host_failed = false;      ///< Then all members have failed.
  bool touched = false;          ///< The output has been written, at least in part.

  DeviceRelay* relay = nullptr;        ///< This member can put all steps into the queue at once.
  bool flies = false;                  ///< All members have: it is under way, and the relay waits for its end.
  std::shared_ptr<FabricLink> fabric;  ///< Then, of one by the fabric.

  // Of the direct way.
  bool held = false;                      ///< It flies, and the queue is held between the steps.
  bool is_there = false;                  ///< What this member shows, when the members meet.
  std::optional<uint64_t> touched_after;  ///< The output is written once all members have reached this point.
  int reached = 0;                        ///< Points that nobody has waited for yet, where the queue is not held.

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
  /// All that is in the queue now is something that the others will wait for. Returns its number.
  Result<uint64_t> reach();
  /// What comes now begins when all members have reached a point.
  Status after(uint64_t point);
  Status turn();  ///< Both.
  /// The next step writes the output, which `is_input` too.
  void write_output(bool is_input);
  /// What comes after the last step; and, if others may read this member's memory, until they have.
  Status follow();
  Status end();
  /// The end of the queue is the operation's only point: the relay waits for it.
  Status fly(bool touches_input);
  /// Nothing comes any more: whoever wants the result in a stream of the device is told. Returns the end.
  Result<device::EventHandle> all_queued() const;
  Status finish() const { return lane->queue->finish(may_spin); }
};

}  // namespace horo::group
