// A device for tests: memory of the host that behaves like one. It is exported as a file of this process, streams are
// empty, and everything has happened when it is asked for.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "horo/device/plugin.h"
#include "horo/kernel/reduce.h"

namespace horo::group::testing {

/// What tests change and look at. One for the process, as a driver is.
struct HostDevice {
  std::atomic<bool> refuses_import{false};
  std::atomic<bool> refuses_copies{false};
  std::atomic<bool> in_turns{false};  ///< All processes are known to have the same one, which serves one at a time.
  std::atomic<int> allocations{0};    ///< Of the device's memory, that are not freed.
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

inline int host_copy(void*, const horo_device_copy* pieces, size_t count) {
  if (HostDevice::get().refuses_copies) return refused();
  ++HostDevice::get().copies;
  for (size_t i = 0; i < count; ++i) std::memmove(pieces[i].to, pieces[i].from, pieces[i].bytes);
  return 0;
}

inline int host_identify(int, horo_device_identity* identity) {
  if (!HostDevice::get().in_turns) return refused();
  *identity = {};
  identity->in_turns = 1;
  return 0;
}

inline int host_reduce(void*, const horo_device_reduction* reduction) {
  const auto dtype = static_cast<DType>(reduction->dtype);
  const size_t bytes = reduction->count * size_of(dtype);
  std::vector<std::vector<std::byte>> scaled;
  std::vector<const std::byte*> from;
  for (size_t i = 0; i < reduction->sources; ++i) {
    const auto* source = static_cast<const std::byte*>(reduction->from[i]);
    if (reduction->before != 1.0) {
      scaled.emplace_back(bytes);
      kernel::scale(dtype)(scaled.back().data(), source, reduction->count, {reduction->before, 1});
      source = scaled.back().data();
    }
    from.push_back(source);
  }
  auto* to = static_cast<std::byte*>(reduction->to);
  kernel::combine_many(dtype, static_cast<ReduceOp>(reduction->op))(to, from, reduction->count,
                                                                    {reduction->factor, reduction->divisor});
  if (reduction->also != nullptr) std::memcpy(reduction->also, to, bytes);
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
      .allocate_host = host_allocate,
      .free_host = host_free,
      .open_queue =
          [](int, void** queue) {
            *queue = new int(0);
            return 0;
          },
      .close_queue = [](void* queue) { delete static_cast<int*>(queue); },
      .queue_wait = [](void*, void*) { return 0; },
      .queue_copy = host_copy,
      .queue_transfer =
          [](void*, void* to, const void* from, uint64_t bytes) {
            ++HostDevice::get().transfers;
            std::memcpy(to, from, bytes);
            return 0;
          },
      .queue_reduce = host_reduce,
      .queue_finish = [](void*, int) { return 0; },
      .record =
          [](int, void*, void** event) {
            *event = new int(0);
            return 0;
          },
      .forget = [](void* event) { delete static_cast<int*>(event); },
      .identify = host_identify,
      .fabric_version = nullptr,
      .fabric_reduces = nullptr,
      .fabric_id = nullptr,
      .open_communicator = nullptr,
      .poll_communicator = nullptr,
      .queue_collective = nullptr,
      .close_communicator = nullptr,
      .queue_mark = [](void*) { return 0; },
      .queue_poll = [](void*) { return 0; },
      .cast = nullptr,
      .synchronize = [](int) { return 0; },
      .queue_await = [](void*, int) { return 0; },
      .event_poll = [](void*) { return 0; },
  };
  return table;
}

}  // namespace horo::group::testing
