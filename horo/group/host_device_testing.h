// A device for tests: memory of the host that behaves like one. It is exported as a file of this process. A queue is a
// thread that does one thing after the other; so is a stream, where it is not null, which has nothing to do.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "horo/device/plugin.h"
#include "horo/kernel/reduce.h"

namespace horo::group::testing {

/// What tests change and look at. One for the process, as a driver is.
struct HostDevice {
  std::atomic<bool> refuses_import{false};
  std::atomic<bool> has_memory_to_copy{true};
  std::atomic<bool> refuses_queues{false};
  std::atomic<bool> in_turns{false};  ///< All processes are known to have the same one, which serves one at a time.
  std::atomic<bool> may_hold{true};
  std::atomic<int> held{0};         ///< How often a queue was held.
  std::atomic<int> called_off{0};   ///< Copies and reductions that a guard left out.
  std::atomic<int> allocations{0};  ///< Of the device's memory, that are not freed.
  std::atomic<int> mappings{0};
  std::atomic<int> imports{0}, transfers{0}, copies{0};
  std::mutex mutex;
  std::map<void*, std::pair<int, size_t>> memory;  ///< File and size.
  static HostDevice& get() {
    static HostDevice device;
    return device;
  }
};

struct HostHandle {
  int process;
  int file;
  uint64_t bytes;
};

inline int refused() { return static_cast<int>(Code::kUnavailable); }

inline int host_allocate(int, uint64_t bytes, void** memory) {
  const int file = memfd_create("horo-host-device", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return refused();
  *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  HostDevice& device = HostDevice::get();
  std::lock_guard lock(device.mutex);
  device.memory[*memory] = {file, bytes};
  ++device.allocations;
  return 0;
}

inline void host_free(int, void* memory) {
  HostDevice& device = HostDevice::get();
  std::lock_guard lock(device.mutex);
  auto found = device.memory.find(memory);
  munmap(memory, found->second.second);
  close(found->second.first);
  device.memory.erase(found);
  --device.allocations;
}

inline int host_export(int, void* memory, unsigned char handle[HORO_DEVICE_HANDLE_BYTES]) {
  HostDevice& device = HostDevice::get();
  std::lock_guard lock(device.mutex);
  const auto& [file, bytes] = device.memory.at(memory);
  const HostHandle made{getpid(), file, bytes};
  std::memcpy(handle, &made, sizeof made);
  return 0;
}

inline int host_import(int, const unsigned char handle[HORO_DEVICE_HANDLE_BYTES], void** memory) {
  HostDevice& device = HostDevice::get();
  if (device.refuses_import) return refused();
  HostHandle given{};
  std::memcpy(&given, handle, sizeof given);
  const std::string path = "/proc/" + std::to_string(given.process) + "/fd/" + std::to_string(given.file);
  FILE* file = fopen(path.c_str(), "r");
  if (file == nullptr) return refused();
  *memory = mmap(nullptr, given.bytes, PROT_READ, MAP_SHARED, fileno(file), 0);
  fclose(file);
  if (*memory == MAP_FAILED) return refused();
  std::lock_guard lock(device.mutex);
  device.memory[*memory] = {-1, given.bytes};
  ++device.mappings;
  ++device.imports;
  return 0;
}

inline void host_close(int, void* memory) {
  HostDevice& device = HostDevice::get();
  std::lock_guard lock(device.mutex);
  munmap(memory, device.memory.at(memory).second);
  device.memory.erase(memory);
  --device.mappings;
}

class HostQueue;
/// An event: it has happened when its queue has come so far.
struct HostMoment {
  HostQueue* queue = nullptr;  ///< Null: has happened.
  uint64_t number = 0;
};

class HostQueue {
 public:
  HostQueue() : thread_([this] { work(); }) {}
  ~HostQueue() {
    {
      std::lock_guard lock(mutex_);
      over_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }
  HostQueue(const HostQueue&) = delete;
  HostQueue& operator=(const HostQueue&) = delete;

  void put(std::function<void()> what) {
    std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(what));
    ++given_;
    changed_.notify_all();
  }
  /// Left out if the guard says so when its turn comes.
  void put_guarded(std::function<void()> what) {
    put([guard = guard_, what = std::move(what)] {
      if (guard == nullptr || load(guard) == 0) return what();
      ++HostDevice::get().called_off;
    });
  }
  HostMoment now() {
    std::lock_guard lock(mutex_);
    return {this, given_};
  }
  bool has_come(uint64_t number) {
    std::lock_guard lock(mutex_);
    return done_ >= number;
  }
  void finish() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_ == given_; });
  }
  void hold(const uint32_t* word, uint32_t value) {
    ++HostDevice::get().held;
    put([word, value] {
      while (static_cast<int32_t>(load(word) - value) < 0) std::this_thread::yield();
    });
  }
  void signal(uint32_t* word, uint32_t value) {
    put([word, value] { std::atomic_ref(*word).store(value, std::memory_order_release); });
  }
  void wait(const HostMoment& moment) {
    put([moment] {
      while (moment.queue != nullptr && !moment.queue->has_come(moment.number)) std::this_thread::yield();
    });
  }
  void set_guard(const uint32_t* word) { guard_ = word; }
  uint64_t marked = 0;

 private:
  static uint32_t load(const uint32_t* word) {
    return std::atomic_ref(*const_cast<uint32_t*>(word)).load(std::memory_order_acquire);
  }
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return over_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      const std::function<void()> next = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      next();
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  uint64_t given_ = 0, done_ = 0;
  bool over_ = false;
  const uint32_t* guard_ = nullptr;
  std::thread thread_;
};

inline HostQueue& host_queue(void* queue) { return *static_cast<HostQueue*>(queue); }

inline int host_copy(void* queue, const horo_device_copy* pieces, size_t count) {
  if (!HostDevice::get().has_memory_to_copy) throw std::bad_alloc();
  ++HostDevice::get().copies;
  host_queue(queue).put_guarded([all = std::vector<horo_device_copy>(pieces, pieces + count)] {
    for (const horo_device_copy& piece : all) std::memmove(piece.to, piece.from, piece.bytes);
  });
  return 0;
}

inline int host_record(int, void* stream, void** event) {
  *event = new HostMoment(stream == nullptr ? HostMoment() : host_queue(stream).now());
  return 0;
}

inline int host_wait(void* queue, void* event) {
  host_queue(queue).wait(*static_cast<HostMoment*>(event));
  return 0;
}

inline int host_identify(int, horo_device_identity* identity) {
  if (!HostDevice::get().in_turns) return refused();
  *identity = {};
  identity->in_turns = 1;
  return 0;
}

inline void reduce_now(const horo_device_reduction& reduction, const std::vector<const void*>& inputs) {
  const auto dtype = static_cast<DType>(reduction.dtype);
  const size_t bytes = reduction.count * size_of(dtype);
  std::vector<std::vector<std::byte>> scaled;
  std::vector<const std::byte*> from;
  for (const void* input : inputs) {
    const auto* source = static_cast<const std::byte*>(input);
    if (reduction.before != 1.0) {
      scaled.emplace_back(bytes);
      kernel::scale(dtype)(scaled.back().data(), source, reduction.count, {reduction.before, 1});
      source = scaled.back().data();
    }
    from.push_back(source);
  }
  auto* to = static_cast<std::byte*>(reduction.to);
  kernel::combine_many(dtype, static_cast<ReduceOp>(reduction.op))(to, from, reduction.count,
                                                                   {reduction.factor, reduction.divisor});
  if (reduction.also != nullptr) std::memcpy(reduction.also, to, bytes);
}

inline int host_reduce(void* queue, const horo_device_reduction* reduction) {
  const std::vector<const void*> inputs(reduction->from, reduction->from + reduction->sources);
  host_queue(queue).put_guarded([all = *reduction, inputs] { reduce_now(all, inputs); });
  return 0;
}

/// The table; `describe` says that operations can run.
inline const horo_device_plugin& host_device() {
  static const horo_device_plugin table = {
      .struct_size = sizeof(horo_device_plugin),
      .version = HORO_DEVICE_VERSION,
      .name = "host",
      .last_error = [] { return "refused by the test"; },
      .describe =
          [](char* words, size_t capacity) {
            if (capacity > 0) *words = '\0';
            return 0;
          },
      .set_cache = [](const char*) {},
      .count =
          [](int* devices) {
            *devices = 1;
            return 0;
          },
      .allocate = host_allocate,
      .free = host_free,
      .export_memory = host_export,
      .import_memory = host_import,
      .close_memory = host_close,
      .allocate_host =
          [](int, uint64_t bytes, void** memory) {
            *memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
            return *memory == nullptr ? refused() : 0;
          },
      .free_host = [](int, void* memory) { std::free(memory); },
      .open_queue =
          [](int, void** queue) {
            if (HostDevice::get().refuses_queues) return refused();
            *queue = new HostQueue;
            return 0;
          },
      .close_queue = [](void* queue) { delete &host_queue(queue); },
      .queue_wait = host_wait,
      .queue_copy = host_copy,
      .queue_transfer =
          [](void* queue, void* to, const void* from, uint64_t bytes) {
            ++HostDevice::get().transfers;
            host_queue(queue).put([to, from, bytes] { std::memcpy(to, from, bytes); });
            return 0;
          },
      .queue_reduce = host_reduce,
      .queue_finish =
          [](void* queue, int) {
            host_queue(queue).finish();
            return 0;
          },
      .record = host_record,
      .forget = [](void* event) { delete static_cast<HostMoment*>(event); },
      .identify = host_identify,
      .fabric_version = nullptr,
      .fabric_reduces = nullptr,
      .fabric_id = nullptr,
      .open_communicator = nullptr,
      .poll_communicator = nullptr,
      .queue_collective = nullptr,
      .close_communicator = nullptr,
      .queue_mark =
          [](void* queue) {
            host_queue(queue).marked = host_queue(queue).now().number;
            return 0;
          },
      .queue_poll =
          [](void* queue) { return host_queue(queue).has_come(host_queue(queue).marked) ? 0 : HORO_DEVICE_PENDING; },
      .queue_await =
          [](void* queue, int) {
            while (!host_queue(queue).has_come(host_queue(queue).marked)) std::this_thread::yield();
            return 0;
          },
      .cast = nullptr,
      .synchronize = [](int) { return 0; },
      .event_poll =
          [](void* event) {
            const HostMoment& moment = *static_cast<HostMoment*>(event);
            return moment.queue == nullptr || moment.queue->has_come(moment.number) ? 0 : HORO_DEVICE_PENDING;
          },
      .queue_record = [](void* queue, void** event) { return host_record(0, queue, event); },
      .stream_wait = [](int, void* stream, void* event) { return host_wait(stream, event); },
      .queue_signal =
          [](void* queue, uint32_t* word, uint32_t value) {
            host_queue(queue).signal(word, value);
            return 0;
          },
      .queue_hold =
          [](void* queue, const uint32_t* word, uint32_t value) {
            host_queue(queue).hold(word, value);
            return 0;
          },
      .queue_guard =
          [](void* queue, const uint32_t* word) {
            host_queue(queue).set_guard(word);
            return 0;
          },
      .may_hold = [](int) { return HostDevice::get().may_hold ? 1 : 0; },
      .release_holds = [](int) {},
  };
  return table;
}

}  // namespace horo::group::testing
