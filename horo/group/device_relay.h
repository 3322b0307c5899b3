// Holds the queue of a device between the steps of operations, until all members have come so far.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "horo/base/deadline.h"
#include "horo/base/status.h"
#include "horo/base/thread.h"
#include "horo/device/device.h"
#include "horo/group/device_host.h"
#include "horo/group/fabric_link.h"
#include "horo/group/plane.h"

namespace horo::group {

/// All steps of an operation are put into the queue at once. Between two steps the queue says that it has reached a
/// point, and is held until all members have. Points are counted through all operations of the group. This class has a
/// thread that sees how far the queue is (a word that the device writes), tells the other members (the board), and
/// opens the queue when all have come (a word that the device waits for). It does so by loads and stores alone: a
/// thread of the application may wait in the driver, with its locks, for just this queue, and the thread that fills the
/// queue may have to wait for those locks. So whatever is in queues goes on, without anybody's help.
///
/// Operations of the fabric need no holds, as the devices wait for each other; their end is a point. While one is under
/// way the thread looks for errors of the fabric, too, and after a failure it aborts it, so that the queue goes on.
///
/// Several operations may be in the queue. When the group is over its members freeze the board, on which all see the
/// same: an operation whose last point all have reached has succeeded, all others have failed. Their queue is opened to
/// its end, and what has not begun by then is left out.
///
/// begin(), reach(), after(), launch() and cancel() are called by one thread at a time.
class DeviceRelay {
 public:
  using Landed = std::function<void(const Status&)>;

  /// Null where queues cannot be held.
  static std::unique_ptr<DeviceRelay> open(device::Devices& devices, int device, DeviceBoard& board, DeviceHost& host);
  /// The group is over; what is under way ends first.
  ~DeviceRelay();
  DeviceRelay(const DeviceRelay&) = delete;
  DeviceRelay& operator=(const DeviceRelay&) = delete;

  /// Whether an operation may be put into the queue now: no other group of the process holds one, if this is to. Then
  /// launch() or cancel() is called.
  bool begin(bool holds);
  void cancel();
  /// Whether all that was launched has landed.
  bool is_idle();

  /// All that is in the queue now is a point, which the others may wait for. Returns its number.
  Result<uint64_t> reach(device::Queue& queue);
  /// What comes now begins when all members have reached it.
  Status after(device::Queue& queue, uint64_t point) const;
  /// Not 0 when what has not begun is to be left out.
  const uint32_t* spoilt() const { return &words_->spoilt; }
  /// In the queue so far.
  uint64_t points() const { return points_; }

  struct Flight {
    std::string what;  ///< For messages.
    Deadline deadline;
    std::optional<uint64_t> touched_after;  ///< The point after which it changes its input.
    Status queued;                          ///< What happened when it was put into the queue.
    device::EventHandle end;                ///< All of it has run. Null if it could not be put into the queue.
    Landed landed;                          ///< On this class's thread, once nothing of it runs any more.
    std::shared_ptr<FabricLink> fabric;     ///< Null: members read each other's memory.
    uint64_t last = 0;                      ///< Its last point.
  };
  void launch(Flight flight);

  /// Until nothing is under way. At once on this class's own thread.
  void wait_idle();

 private:
  /// In memory of the host that the device has mapped.
  struct Words {
    alignas(64) uint32_t reached = 0;  ///< Written by the device.
    alignas(64) uint32_t open = 0;     ///< Written by this class.
    alignas(64) uint32_t spoilt = 0;   ///< The same.
  };
  /// None: the group is over.
  struct Fault {
    std::optional<Status> status;
  };
  enum class Awaited : uint8_t { kDevice, kOthers };

  DeviceRelay(device::Devices& devices, int device, DeviceBoard& board, DeviceHost& host, Words* words);
  void work(const std::stop_token& stop);
  void pass_point();
  template <class Condition>
  bool await(Condition has_come, Awaited awaited);
  std::optional<Fault> find_fault(Time since);
  std::optional<Fault> find_fault_of(FabricLink& fabric, const std::string& what);
  void fail(const Fault& fault);
  void land(std::unique_lock<std::mutex>& lock);
  /// Under the lock.
  bool is_busy() const { return filling_ || !flights_.empty(); }
  /// Its points may be passed before it is launched.
  bool can_land() const { return !flights_.empty() && flights_.front().last <= passed_; }

  device::Devices& devices_;
  const int device_;
  DeviceBoard& board_;
  DeviceHost& host_;
  Words* const words_;
  uint64_t points_ = 0;  ///< In the queue. Used by the thread that fills it.

  // Used by this class's thread.
  uint64_t passed_ = 0;        ///< Points, by all members.
  std::future<Status> asked_;  ///< Whether the device has failed.
  Time asked_at_ = {};
  int looks_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool filling_ = false;
  std::deque<Flight> flights_;  ///< The first may be landing.
  std::unique_ptr<device::HoldPermit> permit_;
  std::optional<Status> failure_;
  std::thread::id id_;
  Thread thread_;
};

}  // namespace horo::group
