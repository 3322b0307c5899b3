// Waits until descriptors are ready: many that stay (Poller, epoll) or a handful at once (poll_many).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "horo/base/deadline.h"
#include "horo/base/status.h"
#include "horo/net/fd.h"

namespace horo::net {

enum class Interest : uint8_t { kNone = 0, kRead = 1, kWrite = 2, kReadWrite = 3 };

constexpr Interest interest(bool read, bool write) { return static_cast<Interest>((read ? 1 : 0) | (write ? 2 : 0)); }
constexpr bool wants_read(Interest interest) { return (static_cast<uint8_t>(interest) & 1) != 0; }
constexpr bool wants_write(Interest interest) { return (static_cast<uint8_t>(interest) & 2) != 0; }

/// What a signal handler of the program does to a wait.
enum class OnSignal : uint8_t {
  kGoOn,    ///< The wait continues.
  kReturn,  ///< The wait returns kInterrupted (Ctrl-C in Python).
};

struct Event {
  uint64_t token = 0;
  bool readable = false;
  bool writable = false;
  /// The other side is gone or the descriptor is in error. Told even to Interest::kNone, and again until it is removed.
  bool hung_up = false;
};

/// Level-triggered: what is ready and not dealt with is reported again. Used by one thread.
/// Deadlines are the caller's: timers are the earliest of its deadlines passed to wait().
class Poller {
 public:
  static Result<Poller> create();

  /// `token` comes back with each event. The descriptor stays the caller's; remove() it before it is closed.
  Status add(int fd, Interest interest, uint64_t token);
  Status modify(int fd, Interest interest, uint64_t token);
  Status remove(int fd);

  /// Ready descriptors; empty when the deadline passes. At most 64 at once, the rest next time. Valid until the next
  /// call. A deadline that has passed makes this a look without a wait.
  Result<std::span<const Event>> wait(Deadline deadline, OnSignal on_signal = OnSignal::kGoOn);

  /// Readable when an event waits: pollers nest.
  int fd() const { return epoll_.get(); }

 private:
  explicit Poller(UniqueFd epoll) : epoll_(std::move(epoll)) {}
  Status control(int operation, const char* what, int fd, Interest interest, uint64_t token);

  UniqueFd epoll_;
  std::vector<Event> events_;
};

struct PollItem {
  int fd = -1;  ///< Negative: left out.
  Interest interest = Interest::kRead;
  bool readable = false;
  bool writable = false;
  bool hung_up = false;
};

/// How many of `items` (at most 256) are ready, zero when the deadline passes. Fills in what they are ready for.
/// Nanosecond deadlines.
Result<size_t> poll_many(std::span<PollItem> items, Deadline deadline, OnSignal on_signal = OnSignal::kGoOn);

/// Waits for one descriptor; kTimeout (naming `what`) when the deadline passes.
Status wait_ready(int fd, Interest interest, Deadline deadline, const char* what);

}  // namespace horo::net
