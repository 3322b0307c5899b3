#include "horo/group/fork.h"

#include <pthread.h>

#include <algorithm>
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
};

Tracked& tracked() {
  static auto* list = new Tracked;  // Never destroyed: a child may be forked while the process ends.
  return *list;
}

void before_fork() { tracked().mutex.lock(); }
void in_parent() { tracked().mutex.unlock(); }
void in_child() {
  for (Control* control : tracked().controls) control->mark_forked();
  if (!tracked().controls.empty()) net::close_all_descriptors();
  tracked().mutex.unlock();
}

}  // namespace

void track_fork(Control& control) {
  static const int kInstalled = pthread_atfork(before_fork, in_parent, in_child);
  (void)kInstalled;
  std::lock_guard lock(tracked().mutex);
  tracked().controls.push_back(&control);
}

void untrack_fork(Control& control) {
  std::lock_guard lock(tracked().mutex);
  std::erase(tracked().controls, &control);
}

}  // namespace horo::group
