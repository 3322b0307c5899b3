#include "horo/engine/mover.h"

#include "horo/base/text.h"
#include "horo/kernel/reduce.h"

namespace horo::engine {

Mover::~Mover() {
  for (const device::Exported& room : rooms_) {
    if (room.base != nullptr) devices_->free(room.base);
  }
  for (const std::byte* old : old_rooms_) devices_->free(old);
}

Status Mover::use(int device) {
  device_ = device;
  if (device < 0) return {};
  if (source_ == nullptr) return {Code::kUnavailable, "there are no devices here"};
  if (queue_ != nullptr && queue_->device() == device) return {};
  HORO_ASSIGN(devices_, source_->get());
  HORO_TRY(devices_->usable());
  HORO_ASSIGN(queue_, device::Queue::open(*devices_, device));
  for (device::Exported& room : rooms_) {
    if (room.base != nullptr) old_rooms_.push_back(room.base);
    room = {};
  }
  return {};
}

Status Mover::wait(const device::EventHandle& ready) { return on_device() ? queue_->wait(ready) : Status(); }

void Mover::add(std::byte* to, const std::byte* from, uint64_t bytes) {
  if (!on_device()) return kernel::copy(to, from, bytes);
  if (bytes > 0 && to != from) pieces_.push_back({to, from, bytes});
}

Status Mover::start() { return on_device() ? start_in(*queue_) : Status(); }

Status Mover::start_in(device::Queue& queue) {
  const std::vector<horo_device_copy> pieces = std::move(pieces_);
  pieces_.clear();
  return queue.copy(pieces);
}

Status Mover::flush() {
  HORO_TRY(start());
  return on_device() ? queue_->finish(false) : Status();
}

Status Mover::transfer(std::byte* to, const std::byte* from, uint64_t bytes) {
  HORO_TRY(queue_->transfer(to, from, bytes));
  return queue_->finish(false);
}

Result<std::span<std::byte>> Mover::room(size_t slot, uint64_t bytes) {
  device::Exported& room = rooms_[slot];
  if (room.bytes < bytes || room.base == nullptr) {
    uint64_t wanted = 1 << 20;
    while (wanted < bytes) wanted *= 2;
    HORO_ASSIGN(device::Exported made, devices_->allocate(device_, wanted));
    if (room.base != nullptr) old_rooms_.push_back(room.base);
    room = made;
  }
  return std::span(room.base, bytes);
}

}  // namespace horo::engine
