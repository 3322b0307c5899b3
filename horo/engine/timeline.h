// The timeline of one rank: what its tensors went through, as a Chrome trace that can be read at any time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "horo/base/bounded_queue.h"
#include "horo/base/log.h"
#include "horo/base/status.h"
#include "horo/base/thread.h"
#include "horo/engine/trace_event.h"
#include "horo/engine/trace_file.h"
#include "horo/engine/trace_text.h"

namespace horo::engine {

/// Thread-safe.
///
/// Any thread pushes events into a bounded queue and never waits; what does not fit is counted, and the count is in the
/// file and in the log. A thread of its own, which exists while a timeline is written, makes text of them and writes
/// it.
class Timeline {
 public:
  Timeline(int rank, int size, std::string clock, Log& log, size_t capacity = kCapacity);
  ~Timeline();

  /// Begins a file; another one that is being written is finished first.
  Status start(const std::string& path, bool mark_cycles);
  /// What was pushed before is in the file when this returns. Nothing happens when there is none.
  void stop();

  /// Nothing needs to be pushed while it is off.
  bool on() const { return on_.load(std::memory_order_relaxed); }
  bool marks_cycles() const { return marks_cycles_.load(std::memory_order_relaxed); }
  void push(TraceEvent event);
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

  static constexpr size_t kCapacity = 1 << 15;

 private:
  struct Writing {
    TraceText text;
    TraceFile file;
    std::string pending;
    uint32_t generation = 0;
    uint64_t dropped_said = 0;
    Time held_since{};  ///< Since when readers hold the file's lock; 0: they do not.
  };

  void write(const std::stop_token& stop, Writing& writing);
  /// False when the file takes no more.
  bool flush(Writing& writing, bool force);
  void collect(Writing& writing);
  void await_events(const std::stop_token& stop, bool pending);

  const int rank_, size_;
  const std::string clock_;
  Log& log_;
  const size_t capacity_;
  std::atomic<bool> on_{false};
  std::atomic<bool> marks_cycles_{false};
  std::atomic<uint32_t> generation_{0};
  std::atomic<uint64_t> dropped_{0};
  std::atomic<bool> asleep_{false};                  ///< The writer waits for the first event.
  std::unique_ptr<BoundedQueue<TraceEvent>> queue_;  ///< Made by the first start; stays, for late pushes.

  std::mutex control_;  ///< Held by start() and stop().
  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false;
  Thread writer_;
};

/// The file of `rank` when `path` is the file of rank 0: "t.json" is "t.rank3.json" for rank 3.
std::string timeline_path(const std::string& path, int rank);

}  // namespace horo::engine
