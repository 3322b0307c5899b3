// Holds the memory of a process while it dies, so that its connections close first.
//
// The kernel takes the memory of a killed process down before it closes a descriptor of it: with gigabytes of small
// pages, ranks on other hosts, who have nothing but their connections to it, hear of its death hundreds of milliseconds
// late. Memory is taken down by the last process that uses it, though. So a rank with such peers has a child that
// shares its memory and nothing else (clone with CLONE_VM alone): no descriptors, a session and a small stack of its
// own, all signals blocked, asleep in one system call. When the rank is gone it wakes up and ends, and the memory with
// it.
//
// The child is seen in lists of processes (as horo-keeper, with the rank's memory, which it does not use twice) and by
// nobody who waits for children: it is reaped here, or, after the rank's death, by whoever adopts it. It ends when the
// rank ends, starts another program (exec), or destroys the Keeper. Killed alone, it leaves things as they are without
// it.
#pragma once

#include <sys/types.h>

#include <memory>

#include "horo/base/status.h"
#include "horo/net/fd.h"

namespace horo::net {

class Keeper {
 public:
  /// Fails where the system has no pidfd or refuses the process. Nothing depends on it but how soon a death is noticed.
  static Result<std::unique_ptr<Keeper>> start();
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  pid_t pid() const { return pid_; }

 private:
  Keeper() = default;

  UniqueFd end_;     ///< The child reads the other end of this pipe, which ends with the rank.
  UniqueFd handle_;  ///< pidfd of the child.
  void* stack_ = nullptr;
  pid_t pid_ = -1;
};

}  // namespace horo::net
