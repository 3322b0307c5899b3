// A communicator of the devices' maker that two threads use.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "horo/base/status.h"
#include "horo/device/device.h"

namespace horo::group {

/// The thread that fills queues puts operations here, and the one that waits for them (DeviceRelay) looks for errors.
/// One at a time, and neither once it has ended.
class FabricLink {
 public:
  explicit FabricLink(std::unique_ptr<device::Communicator> communicator) : communicator_(std::move(communicator)) {}

  /// As Communicator::poll() and Queue::collective().
  Result<bool> poll() {
    std::lock_guard lock(mutex_);
    if (communicator_->ended()) return ended();
    return communicator_->poll();
  }
  Result<bool> put(device::Queue& queue, const horo_device_collective& collective) {
    std::lock_guard lock(mutex_);
    if (communicator_->ended()) return ended();
    return queue.collective(*communicator_, collective);
  }
  /// What runs on the device ends.
  void abort() {
    std::lock_guard lock(mutex_);
    communicator_->abort();
  }
  /// In order, when nothing is under way.
  void close() {
    std::lock_guard lock(mutex_);
    communicator_->close();
  }

 private:
  static Status ended() { return {Code::kStopped, "the devices are not connected any more"}; }
  std::mutex mutex_;
  const std::unique_ptr<device::Communicator> communicator_;
};

}  // namespace horo::group
