// Operations on the memory of devices, made of small operations on the host's memory and of work on the devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "horo/base/status.h"
#include "horo/collective/operation.h"
#include "horo/device/loader.h"

namespace horo::group {

/// What a user may force by name (HORO_DEVICE_PATH). Equal on all members.
enum class DevicePath : uint8_t { kAuto, kDirect, kStaged };

/// Used under the group's execution token. All members run the same operations in the same order, so that each small
/// operation on the host below meets its like; whatever one member finds out alone (no memory, a handle that it cannot
/// open) it tells in the next of them, and all take the same way.
///
/// Direct: members on one host that can map each other's memory read it where it lies. What a caller's tensor holds for
/// others is copied into a window, memory of horo's that is exported once; memory of Devices::allocate() is read in
/// place. Nobody writes into a peer's memory.
///
/// Staged: through pinned memory of the host and the group's own plane. Everything works that way.
class DeviceOperations {
 public:
  /// An operation of the group on memory of the host.
  using OnHost = std::function<Status(const collective::Operation&, const std::byte* in, std::byte* out)>;

  /// Called when this member alone cannot go on: the group ends for all.
  using GiveUp = std::function<void(const Status&)>;

  DeviceOperations(device::Source& source, DevicePath path, collective::Shape shape, int member, GiveUp give_up);
  ~DeviceOperations();

  /// Done, with all its reading and writing, when this returns.
  Status run(const collective::Operation& operation, const std::byte* in, std::byte* out, const OnHost& host,
             bool may_spin);
  /// "direct", "staged", "local": what ran last.
  const char* path_name() const { return ran_; }

 private:
  struct Lane;    ///< What is used on one device.
  struct Call;    ///< One operation.
  struct Record;  ///< What a member tells the others before they read its memory.
  /// Where the memory that each member showed can be read.
  using Bases = std::vector<const std::byte*>;

  int size() const { return shape_.ranks(); }
  Result<Lane*> lane(int device);
  Status dispatch(Call& call);
  Status local(Call& call) const;

  // Staged.
  Status staged(Call& call);
  Status staged_in_pieces(Call& call) const;
  Status staged_whole(Call& call) const;

  // Direct.
  bool may_be_direct(const collective::Operation& operation) const;
  Status direct(Call& call);
  /// Tells the others where this member's data lie: `mine`, which was exported, or the window if it is null. All of it
  /// has been written. False when the members have found that they cannot read each other's memory.
  Result<bool> meet(Call& call, const std::byte* mine, const Status& ready, Bases& bases);
  Result<bool> exchange_handles(Call& call, const device::Exported& mine, const std::vector<Record>& records);
  Status allreduce(Call& call);
  Status allreduce_whole(Call& call, bool exported);
  Status reducescatter(Call& call);
  Status broadcast(Call& call);
  Status allgather(Call& call);
  Status fall_back(Call& call);
  static Status put_into_window(Call& call, std::span<const uint64_t> offsets, std::span<const uint64_t> bytes,
                                int except);
  Status reduce_slice(const Call& call, const Bases& bases, uint64_t offset, uint64_t count, std::byte* out,
                      std::byte* also) const;

  device::Source& source_;
  const DevicePath path_;
  const collective::Shape shape_;
  const int member_;
  const GiveUp give_up_;
  bool mapping_works_ = true;  ///< The same on all members.
  const char* ran_ = "none";
  std::map<int, std::unique_ptr<Lane>> lanes_;
};

}  // namespace horo::group
