// Memory that is not the host's, through the table of a plugin: errors are values, and what is opened is closed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "horo/base/status.h"
#include "horo/device/plugin.h"

namespace horo::device {

/// A moment in a stream of the application.
class Event {
 public:
  Event(const horo_device_plugin& plugin, void* event) : plugin_(plugin), event_(event) {}
  ~Event() { plugin_.forget(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void* get() const { return event_; }
  /// What is put into a stream of the application later waits for it.
  Status precede(int device, void* stream) const;

 private:
  const horo_device_plugin& plugin_;
  void* const event_;
};
using EventHandle = std::shared_ptr<const Event>;

class Queue;
/// What comes after an operation on a device. Each is called at most once, on the thread that runs the operation, or
/// not at all: then it is the caller's when the operation is done.
struct Sequel {
  /// Puts more behind the last step, into the same queue, which is left out if the operation fails before.
  std::function<Status(Queue&)> steps = {};
  /// All of it is in queues. When `result` has happened the result is there, unless the operation fails.
  std::function<void(const EventHandle& result)> promise = {};
};

/// Where the memory of an operation is. Ranks agree about whether it is a device, not about its number.
struct Where {
  int device = -1;  ///< -1: the host.
  /// Input and output may be used from then on; null: now.
  EventHandle ready = {};
  bool on_device() const { return device >= 0; }
  friend bool operator==(const Where& a, const Where& b) { return a.on_device() == b.on_device(); }
};

using Handle = std::array<unsigned char, HORO_DEVICE_HANDLE_BYTES>;

using Identity = horo_device_identity;
using FabricId = std::array<unsigned char, HORO_DEVICE_FABRIC_ID_BYTES>;

/// Memory that other processes can map.
struct Exported {
  std::byte* base = nullptr;
  uint64_t bytes = 0;
  uint64_t id = 0;  ///< Never used again by this process.
  Handle handle = {};
};

/// The devices of one plugin, as one engine uses them. Thread-safe.
class Devices {
 public:
  explicit Devices(const horo_device_plugin& plugin) : plugin_(plugin) {}
  /// All that was allocated here must not be in use any more.
  ~Devices();
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;

  const horo_device_plugin& table() const { return plugin_; }
  std::string name() const { return plugin_.name; }
  /// What was found, and what is missing.
  std::string describe() const;
  /// OK when operations can run. Asked once.
  Status usable() const;

  Result<EventHandle> record(int device, void* stream) const;
  Result<bool> has_happened(const EventHandle& event) const { return when_pending(plugin_.event_poll(event->get())); }

  /// Memory that find_exported() knows. Until free() or the end.
  Result<Exported> allocate(int device, uint64_t bytes);
  void free(const std::byte* memory);
  /// What `bytes` at `memory` lie in, if it was allocated here.
  std::optional<Exported> find_exported(const std::byte* memory, uint64_t bytes) const;

  /// In a stream of the application's, in which it is when this returns.
  Status cast(int device, void* stream, const horo_device_cast_terms& terms,
              std::span<const horo_device_cast> arrays) const;
  /// Until nothing of this process is under way on the device.
  Status synchronize(int device) const { return status(plugin_.synchronize(device)); }

  Result<std::byte*> import(int device, const Handle& handle) const;
  void close(int device, std::byte* memory) const { plugin_.close_memory(device, memory); }
  Result<std::byte*> allocate_host(int device, uint64_t bytes) const;
  void free_host(int device, std::byte* memory) const { plugin_.free_host(device, memory); }

  Result<Identity> identify(int device) const;
  /// Of the library that operates between devices.
  Result<int> fabric_version() const;
  bool fabric_reduces(int dtype, int op) const { return plugin_.fabric_reduces(dtype, op) != 0; }
  Result<FabricId> fabric_id() const;

  /// Whether queues can be held by words in the host's memory.
  bool has_holds() const { return plugin_.queue_hold != nullptr; }

  /// What a call of the table returned, in words.
  Status status(int code) const;
  /// False for what is still under way, true for what is done.
  Result<bool> when_pending(int code) const;

 private:
  struct Allocation {
    int device = 0;
    Exported memory;
  };

  const horo_device_plugin& plugin_;
  mutable std::mutex mutex_;
  mutable std::optional<Status> usable_;
  uint64_t ids_ = 0;
  std::map<const std::byte*, Allocation> allocations_;
};

/// This process's part of a fabric between devices. Used by one thread at a time.
class Communicator {
 public:
  /// Not ready yet: poll().
  static Result<std::unique_ptr<Communicator>> open(const Devices& devices, int device, const FabricId& id, int members,
                                                    int member);
  /// Aborts what has not been closed.
  ~Communicator() { end(true); }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// True when nothing is under way; an error when it has failed.
  Result<bool> poll() const;
  void abort() { end(true); }
  void close() { end(false); }
  bool ended() const { return communicator_ == nullptr; }
  void* get() const { return communicator_; }

 private:
  Communicator(const Devices& devices, void* communicator) : devices_(devices), communicator_(communicator) {}
  void end(bool abort);
  const Devices& devices_;
  void* communicator_;
};

/// While it lives a group may hold queues of a device in this process, and no other group.
///
/// A queue that is held until other ranks have come so far makes calls of the application wait that wait for the whole
/// device, with the driver's lock. Were there two such groups, each could keep the other's thread, on different ranks,
/// from putting into its queue what would let go of the first.
class HoldPermit {
 public:
  /// Null: another group has it.
  static std::unique_ptr<HoldPermit> take(const Devices& devices, int device);
  ~HoldPermit() { devices_.table().release_holds(device_); }
  HoldPermit(const HoldPermit&) = delete;
  HoldPermit& operator=(const HoldPermit&) = delete;

 private:
  HoldPermit(const Devices& devices, int device) : devices_(devices), device_(device) {}
  const Devices& devices_;
  const int device_;
};

/// Work on a device, in order. Used by one thread at a time.
class Queue {
 public:
  static Result<std::unique_ptr<Queue>> open(const Devices& devices, int device);
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  int device() const { return device_; }
  /// What comes later waits for it, and it is kept until it has happened. Nothing is put here for what has already.
  Status wait(const EventHandle& event);
  Status copy(std::span<const horo_device_copy> pieces);
  Status copy(std::byte* to, const std::byte* from, uint64_t bytes);
  /// Between host and device.
  Status transfer(std::byte* to, const std::byte* from, uint64_t bytes);
  Status reduce(const horo_device_reduction& reduction);
  /// At once where nothing was put here since.
  Status finish(bool may_spin);
  /// False: it is put there by and by, and is there when the communicator says so.
  Result<bool> collective(const Communicator& communicator, const horo_device_collective& collective);
  /// What is in the queue now has run when poll() is true.
  Status mark() const { return devices_.status(devices_.table().queue_mark(queue_)); }
  Result<bool> poll();
  /// Until what was marked last has run.
  Status await(bool may_spin) const { return devices_.status(devices_.table().queue_await(queue_, may_spin ? 1 : 0)); }
  /// What is in the queue now.
  Result<EventHandle> record() const;

  // Words in memory of allocate_host, where has_holds(). A word is only ever counted up.
  /// The word becomes `value` when all that is here has run.
  Status signal(uint32_t* word, uint32_t value);
  /// What comes later waits until the word is `value` or more.
  Status hold(const uint32_t* word, uint32_t value);
  /// What comes later does nothing if the word is not 0 by the end of the hold before it; null: it always runs.
  Status guard(const uint32_t* word) const;

 private:
  Queue(const Devices& devices, int device, void* queue) : devices_(devices), device_(device), queue_(queue) {}
  const Devices& devices_;
  const int device_;
  void* const queue_;
  bool empty_ = true;
  std::deque<EventHandle> awaited_;
};

}  // namespace horo::device
