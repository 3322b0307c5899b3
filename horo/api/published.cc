// The runtime that a process shares with the plugins of frameworks.
#include <mutex>

#include "horo/api/handles.h"

namespace {

/// The one mutable global behind the C interface: kernels of a framework have no other way to their runtime.
struct Published {
  std::mutex mutex;
  horo_runtime* runtime = nullptr;
  /// Of the process that published: in a forked child the mutex may be held for ever.
  std::atomic<uint32_t> forks = 0;
};

Published& published() {
  // Never destroyed: kernels may still run while the process exits.
  static Published* const kOnly = new Published;
  return *kOnly;
}

}  // namespace

void horo::api::take_back(const horo_runtime* runtime) {
  Published& place = published();
  const std::lock_guard lock(place.mutex);
  if (place.runtime == runtime) place.runtime = nullptr;
}

void horo_runtime_publish(horo_runtime* runtime) {
  if (runtime != nullptr && !runtime->process.is_current()) return;
  Published& place = published();
  if (runtime == nullptr && place.forks != horo::group::forks()) return;
  const std::lock_guard lock(place.mutex);
  place.runtime = runtime;
  place.forks = horo::group::forks();
}

horo_runtime* horo_runtime_acquire(void) {
  Published& place = published();
  if (place.forks != horo::group::forks()) return nullptr;
  const std::lock_guard lock(place.mutex);
  if (place.runtime != nullptr) ++place.runtime->holders;
  return place.runtime;
}

void horo_runtime_release(horo_runtime* runtime) {
  if (runtime == nullptr || !runtime->process.is_current()) return;
  if (--runtime->holders == 0) delete runtime;
}
