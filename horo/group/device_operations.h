// Operations on the memory of devices, made of small operations on the host's memory and of work on the devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "horo/base/deadline.h"
#include "horo/base/status.h"
#include "horo/collective/operation.h"
#include "horo/device/loader.h"
#include "horo/group/device_host.h"
#include "horo/group/device_path.h"
#include "horo/group/device_relay.h"

namespace horo::group {

struct DeviceTerms {
  DevicePath path = DevicePath::kAuto;  ///< Equal on all members.
  bool share = false;                   ///< Several ranks on one device are meant so.
  DeviceHold hold = DeviceHold::kAuto;
  collective::Shape shape = collective::Shape::on_one_host(1);
  std::vector<int> ranks;  ///< In the job; the members in order.
  int member = 0;
  Duration limit = std::chrono::seconds(30);  ///< For what is made between members.
};

/// Used under the group's execution token. All members run the same operations in the same order, so that each small
/// operation on the host below meets its like; whatever one member finds out alone (no memory, a handle that it cannot
/// open) it tells in the next of them, and all take the same way.
///
/// Direct: members on one host that can map each other's memory read it where it lies. What a caller's tensor holds for
/// others is copied into a window, memory of horo's that is exported once; memory of Devices::allocate() is read in
/// place. Nobody writes into a peer's memory.
///
/// Where members share memory and the device has words by which a queue waits, all steps of a direct operation are put
/// into the queue as soon as the members have met; whoever waits for the result in a stream is told so, and the next
/// operation can be put behind it (DeviceRelay). Not on a device that serves processes in turns, where each hold costs
/// a turn. One group of a process does so at a time (device::HoldPermit), and all members agree on it when they meet.
/// Otherwise an operation runs step by step: each is finished before the members go on to the next.
///
/// Fabric: a library of the devices' maker moves the data, where each member has a device of its own. Members arrive on
/// the host first, so that nothing on a device ever waits for a late one, and leave together, so that all have the same
/// outcome: by the relay, if somebody wants the result in a stream and members share memory, and on the host otherwise.
/// While a device works its member looks for losses; after one it aborts its part, and the host's plane says what
/// happened.
///
/// Staged: through pinned memory of the host and the group's own plane. Everything works that way.
class DeviceOperations {
 public:
  /// `board` may be null.
  DeviceOperations(device::Source& source, DeviceTerms terms, DeviceHost& host, DeviceBoard* board);
  ~DeviceOperations();

  /// Done, with all its reading and writing, when this returns.
  Status run(const collective::Operation& operation, const std::byte* in, std::byte* out, const OnHost& host,
             Deadline deadline, bool may_spin, const device::Sequel& sequel = {});
  /// The same, but it may return nothing while the operation is under way. `landed` is told the outcome then, on
  /// another thread; it must not wait.
  std::optional<Status> start(const collective::Operation& operation, const std::byte* in, std::byte* out,
                              const OnHost& host, Deadline deadline, bool may_spin, const device::Sequel& sequel,
                              DeviceRelay::Landed landed);
  /// Until nothing is under way that was started. Of a group that is over.
  void wait_idle();
  /// "nccl", "direct", "staged", "local": what ran last.
  const char* path_name() const { return ran_; }

 private:
  struct Lane;    ///< What is used on one device.
  struct Call;    ///< One operation.
  struct Record;  ///< What a member tells the others before they read its memory.
  struct Arrival;
  struct Layout;  ///< Which part of an operation's memory is whose.
  struct Fabric;  ///< What is between one device of each member.
  struct Factors {
    double before = 1.0;
    kernel::Scaling after;
  };
  /// Where the memory that each member showed can be read.
  using Bases = std::vector<const std::byte*>;

  int size() const { return terms_.shape.ranks(); }
  Result<Lane*> lane(int device);
  Status dispatch(Call& call);
  Status local(Call& call) const;
  /// As on the host: sums of floats are scaled once, afterwards.
  Factors factors_of(const collective::Operation& operation) const;
  /// That all members run the same operation.
  Status compare(Call& call, const std::vector<Arrival>& all) const;

  // By the fabric.
  bool may_use_fabric(const Call& call) const;
  Result<std::vector<Arrival>> arrive(Call& call) const;
  Status compare_alltoall(Call& call) const;
  /// What the members that have arrived use; null when they cannot, and have agreed so.
  Result<std::shared_ptr<FabricLink>> fabric(Call& call, const std::vector<Arrival>& all);
  Status introduce(Call& call);
  Result<std::unique_ptr<device::Communicator>> connect(Call& call);
  Result<device::FabricId> agree_on_id(Call& call);
  Status cannot_use_fabric(Call& call, const std::string& why);
  Status on_fabric(Call& call, FabricLink& fabric, bool may_fly);
  Status run_collective(Call& call, FabricLink& fabric, bool may_fly);
  void abort_fabrics();
  Status await(const std::function<Result<bool>()>& done, Deadline deadline) const;
  Status fabric_failed(Call& call, const Status& why);

  // Staged.
  Status staged(Call& call);
  Status staged_in_pieces(Call& call) const;
  Status staged_whole(Call& call) const;

  /// The relay for this operation, if it can have it: where the queue is held one group of the process can.
  void take_relay(Call& call, bool holds);
  static void leave_relay(Call& call);

  // Direct.
  Status put_into_queue(Call& call);
  bool may_be_direct(const collective::Operation& operation) const;
  /// Too large to go through the host. The same on all members.
  Result<bool> is_large(Call& call) const;
  /// Whether what this member gives is there, and nothing before it under way.
  bool is_there(const Call& call) const;
  Status direct(Call& call);
  struct Shown;
  /// Tells the others where this member's data lie; what comes now begins when everybody's are there. False when the
  /// members have found that they cannot read each other's memory.
  Result<bool> meet_with(Call& call, const Shown& shown, Bases& bases);
  Result<bool> meet(Call& call, const std::byte* mine, const Status& ready, Bases& bases);
  Result<bool> map_new(Call& call, const device::Exported& mine, const std::vector<Record>& records);
  Result<bool> exchange_handles(Call& call, const device::Exported& mine, const std::vector<Record>& records);
  Status allreduce(Call& call);
  Status allreduce_whole(Call& call, bool exported);
  Status allreduce_in_turns(Call& call);
  Status reducescatter(Call& call);
  Status broadcast(Call& call);
  Status allgather(Call& call);
  Status alltoall(Call& call);
  Status fall_back(Call& call);
  static Status put_into_window(Call& call, const Layout& layout, int except);
  /// This member's part, also to the same place of `shown`; and the others' parts, from where they reduced them.
  Status reduce_own(const Call& call, const Bases& bases, const Layout& layout, std::byte* shown) const;
  Status fetch_others(const Call& call, const Bases& bases, const Layout& layout) const;
  /// `own` is what this member gives, if it is not its input.
  Status reduce_slice(const Call& call, const Bases& bases, uint64_t offset, uint64_t count, std::byte* out,
                      std::byte* also, const std::byte* own = nullptr) const;

  device::Source& source_;
  const DeviceTerms terms_;
  const int member_;
  DeviceHost& host_;
  DeviceBoard* const board_;
  bool mapping_works_ = true;  ///< The same on all members.
  bool fabric_works_ = true;   ///< The same.
  bool introduced_ = false;    ///< The same.
  bool in_turns_ = false;      ///< The same: all members use one device, which serves one of them at a time.
  bool flies_ = false;         ///< The same: the relay can wait for the end of operations.
  bool holds_ = false;         ///< The same: queues are held.
  std::string shared_;         ///< Who uses one device.
  const char* ran_ = "none";
  std::map<int, std::unique_ptr<Lane>> lanes_;
  std::unique_ptr<DeviceRelay> relay_;  ///< Of the first device that needed one.
  int relay_device_ = -1;
  std::map<std::vector<int>, std::shared_ptr<FabricLink>> fabrics_;  ///< By the devices of all members.
  /// Memory that all members have mapped, by its owner and number: equal on all of them. By the same devices.
  std::map<std::vector<int>, std::set<std::pair<int, uint64_t>>> shown_;
};

}  // namespace horo::group
