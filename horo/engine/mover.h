// Copies between tensors and the memory in which they are put together: on the host at once, on a device in one launch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "horo/base/status.h"
#include "horo/device/loader.h"

namespace horo::engine {

/// Used by one thread at a time.
class Mover {
 public:
  explicit Mover(std::shared_ptr<device::Source> source) : source_(std::move(source)) {}
  ~Mover();
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;

  /// Where the next batch is: -1 for the host.
  Status use(int device);
  bool on_device() const { return device_ >= 0; }
  int device() const { return device_; }
  /// How far apart tensors begin in memory where they are put together.
  uint64_t aligned(uint64_t bytes) const { return on_device() ? (bytes + 255) / 256 * 256 : bytes; }

  /// What is copied from now on waits for it.
  Status wait(const device::EventHandle& ready);
  void add(std::byte* to, const std::byte* from, uint64_t bytes);
  /// What was added is under way.
  Status start();
  /// Until everything that was added is there.
  Status flush();
  /// When what was started is there. Of a device.
  Result<device::EventHandle> started() const { return queue_->record(); }
  /// In a queue of somebody else's.
  Status start_in(device::Queue& queue);
  /// Between the device and the host, at once.
  Status transfer(std::byte* to, const std::byte* from, uint64_t bytes);

  /// Memory of the device that peers can read; stays until the next call with the same `slot`.
  Result<std::span<std::byte>> room(size_t slot, uint64_t bytes);
  /// For a result.
  Result<std::shared_ptr<std::byte>> lend(uint64_t bytes) const { return source_->lend(device_, bytes); }

 private:
  const std::shared_ptr<device::Source> source_;
  int device_ = -1;
  device::Devices* devices_ = nullptr;
  std::unique_ptr<device::Queue> queue_;
  std::vector<horo_device_copy> pieces_;
  std::array<device::Exported, 2> rooms_;
  std::vector<const std::byte*> old_rooms_;  ///< Peers have them mapped.
};

}  // namespace horo::engine
