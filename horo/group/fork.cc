#include "horo/group/fork.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "horo/group/control.h"
#include "horo/net/fd.h"

namespace horo::group {

namespace {

// Forking concerns the whole process, so this is the one list of engines per process.
struct Tracked {
  std::mutex mutex;
  std::vector<Control*> controls;
  std::atomic<uint32_t> forks{0};
};

Tracked& tracked() {
  static auto* list = new Tracked;  // Never destroyed: a child may be forked while the process ends.
  return *list;
}

void before_fork() { tracked().mutex.lock(); }
void in_parent() { tracked().mutex.unlock(); }
void in_child() {
  tracked().forks.fetch_add(1, std::memory_order_relaxed);
  for (Control* control : tracked().controls) control->mark_forked();
  if (!tracked().controls.empty()) net::close_all_descriptors();
  tracked().mutex.unlock();
}

void install_handlers() {
  static const int kInstalled = pthread_atfork(before_fork, in_parent, in_child);
  (void)kInstalled;
}

}  // namespace

uint32_t forks() {
  install_handlers();
  return tracked().forks.load(std::memory_order_relaxed);
}

void track_fork(Control& control) {
  install_handlers();
  std::lock_guard lock(tracked().mutex);
  tracked().controls.push_back(&control);
}

void untrack_fork(Control& control) {
  std::lock_guard lock(tracked().mutex);
  std::erase(tracked().controls, &control);
}

}  // namespace horo::group
