// Memory that the members of a group on one host share: a control page, one segment per member that only its owner
// writes, and the buffers that each member hands out to callers, where peers put results. The members may be processes
// (shm) or threads of one process (inproc); what runs on it does not know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "horo/base/deadline.h"
#include "horo/base/status.h"
#include "horo/transport/life.h"
#include "horo/transport/page.h"
#include "horo/transport/process.h"

namespace horo::transport {

/// What a waiting thread tells the one who decides about membership. Called on the waiting thread; must not block.
class Watcher {
 public:
  virtual ~Watcher() = default;
  /// `member` is certainly dead. The page is revoked already.
  virtual void found_dead(int member) = 0;
  /// Waiting for `member` since more than 100 ms (and again every 100 ms): probe it.
  virtual void waiting_for(int member, Time since) = 0;
};

/// How to wait (core contract: spin briefly, then yield, then sleep; never burn a core for long).
struct WaitPolicy {
  /// Zero where ranks outnumber usable cores, and on the library's own threads, which would steal from the application.
  Duration spin = std::chrono::microseconds(20);
  /// Spinning and yielding together.
  Duration awake = std::chrono::microseconds(50);

  static WaitPolicy sleeping() { return {Duration::zero(), Duration::zero()}; }
};

/// All of [memory, memory + bytes) lies in `all`.
inline bool holds(std::span<const std::byte> all, const std::byte* memory, size_t bytes) {
  std::less<const std::byte*> before;  // Total order over unrelated pointers.
  return !before(memory, all.data()) && !before(all.data() + all.size(), memory + bytes);
}

/// The buffers that a member hands out to its callers. Peers may write there, but only in an operation that the caller
/// has given the buffer to, and from the moment all members have come to it until it ends.
class Buffers {
 public:
  virtual ~Buffers() = default;
  /// All of [memory, memory + bytes) lies there, and peers see what is in it.
  virtual bool shows(const std::byte* memory, size_t bytes) const = 0;
  /// An operation has failed in which a peer may have begun to write these whole pages, and who knows when it will
  /// stop. From now on the memory is the caller's alone, and empty: peers go on writing to what is no longer there.
  virtual void withdraw(std::span<std::byte> pages) = 0;
};

enum class Waited : uint8_t { kArrived, kRevoked, kTimeout };

/// One member's view of the shared memory of its group.
struct Space {
  std::string_view transport_name;  ///< "inproc" or "shm".
  int rank = 0;
  int size = 1;
  std::vector<int> names;  ///< The members' ranks in the job, for messages.
  ControlPage page;
  /// The members' segments. Staging lies in them.
  std::vector<std::span<const std::byte>> segments;
  std::vector<std::span<std::byte>> buffers;  ///< What the members hand out to callers.
  Buffers* own_buffers = nullptr;             ///< Who answers for buffers[rank].
  std::vector<const std::byte*> areas;        ///< Everybody's staging area, for reading; areas[rank] == own.data().
  std::span<std::byte> own;  ///< This member's staging area, a part of its segment; only this member writes it.
  /// Makes the first `bytes` of `own` real memory, or says why not. Called with growing sizes.
  std::function<Status(size_t bytes)> commit;
  std::vector<const Life*> lives;  ///< Null for this member itself, and where none is to be had.
  /// What the members keep for themselves. Null for this member itself; empty unless it may read all the others.
  std::vector<const Process*> processes;
  Watcher* watcher = nullptr;
  WaitPolicy policy;
};

/// Waits until `word`, which belongs to `member`, counts at least `count`.
/// kRevoked: it is frozen below `count`, or its owner is gone. Notices the death of any member while it waits.
Waited await_slowly(const Space& space, int member, Word& word, uint64_t count, Deadline deadline);

inline Waited await(const Space& space, int member, Word& word, uint64_t count, Deadline deadline) {
  Word::Reading reading = word.read();
  if (reading.count() >= count) return Waited::kArrived;
  return await_slowly(space, member, word, count, deadline);
}

}  // namespace horo::transport
