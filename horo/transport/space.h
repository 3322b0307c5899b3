// Memory that the members of a group on one host share: a control page, and one segment per member that only its owner
// writes. The members may be processes (shm) or threads of one process (inproc); what runs on it does not know.
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

enum class Waited : uint8_t { kArrived, kRevoked, kTimeout };

/// One member's view of the shared memory of its group.
struct Space {
  std::string_view transport_name;  ///< "inproc" or "shm".
  int rank = 0;
  int size = 1;
  std::vector<int> names;  ///< The members' ranks in the job, for messages.
  ControlPage page;
  /// The members' segments. Staging and the buffers that the library hands out lie in them.
  std::vector<std::span<const std::byte>> segments;
  std::vector<const std::byte*> areas;  ///< Everybody's staging area, for reading; areas[rank] == own.data().
  std::span<std::byte> own;  ///< This member's staging area, a part of its segment; only this member writes it.
  /// Makes the first `bytes` of `own` real memory, or says why not. Called with growing sizes.
  std::function<Status(size_t bytes)> commit;
  std::vector<const Life*> lives;  ///< Null for this member itself, and where none is to be had.
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
