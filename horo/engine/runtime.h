// Everything a front end needs: named tensors go in from any thread and in any order, and come out reduced.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "horo/base/status.h"
#include "horo/base/thread.h"
#include "horo/engine/metrics.h"
#include "horo/engine/position.h"
#include "horo/engine/submission.h"
#include "horo/engine/tuning.h"
#include "horo/group/engine.h"

namespace horo::engine {

// A file that only uses a runtime compiles in a fraction of the time without them.
class BufferPool;
class MetricsServer;
class ProcessSet;
class Timeline;
struct NegotiationOptions;

struct RuntimeOptions {
  group::EngineOptions engine;
  /// Ranks of process sets that exist from the start, the same on all ranks; they get the numbers 1, 2, ...
  std::vector<std::vector<int>> process_sets;
  /// What to begin with instead of what the knobs say: what autotune found in an earlier run, say.
  std::optional<Tuning> tuning = {};
  /// This job takes the place of another one of this process, if and only if it comes about. Process sets that it is
  /// too small for are left out. Whoever starts it calls observe().
  bool replaces = false;
};

/// Thread-safe.
///
/// One thread, the loop, drives all process sets: it takes what is handed in, exchanges small messages with the other
/// ranks, and hands batches to the sets' executors. It sleeps when there is nothing to do. A thread that waits for a
/// result drives the loop itself meanwhile, so that a small operation needs no change of threads.
class Runtime {
 public:
  static Result<std::unique_ptr<Runtime>> start(RuntimeOptions options);
  ~Runtime();

  /// As they are now: reform() changes them.
  int rank() const;
  int size() const;
  Position position() const;
  /// Counts up with every rank that is lost.
  uint64_t epoch() const { return engine_->epoch(); }
  group::Engine& engine() { return *engine_; }
  const BufferPool& pool() const { return *pool_; }

  /// Hands calls in to a process set; several are a group. The call itself fails, and hands nothing in, for what is
  /// wrong with the calls: an unknown set, one that this rank is not in, a name that is in use, impossible arguments.
  /// The root of a broadcast is a rank of the job.
  Result<Handle> submit(int set, std::vector<Call> calls, Submission::Callback callback = {});
  /// The same for a thread that calls wait() next, and must: no thread is woken for it, which would take the batch from
  /// the one that waits, and run it asleep.
  Result<Handle> submit_to_wait(int set, std::vector<Call> calls);
  /// Each call by itself, up to the first that is refused. `handles` gets one for each before it. `waits`: as after
  /// submit_to_wait().
  Status submit_each(int set, std::vector<Call> calls, bool waits, std::vector<Handle>& handles);
  /// This rank has no more data. Answered, with the last rank that joined, when all ranks have.
  Result<Handle> join(int set = 0);
  /// Waits for a submission of `set`; kTimeout if it is not done by then (it goes on).
  Status wait(int set, const Handle& handle, Deadline deadline = Deadline::never(),
              Submission::Until until = Submission::Until::kDone);

  // Process sets. Called by all ranks of the job, in the same order with regard to each other.
  Result<int> add_set(std::vector<int> ranks);
  Status remove_set(int set);
  std::vector<int> set_numbers() const;
  Result<std::vector<int>> set_ranks(int set) const;
  /// A group of `ranks` on this runtime's engine, beside its process sets. Called by all of them; waits for them.
  Result<std::shared_ptr<group::Group>> create_group(const std::vector<int>& ranks);

  /// Goes on without the ranks that are lost: called by all survivors, waits for them. They make a new set 0 of all
  /// that are left, over the connections and the memory that they have, and are numbered anew in the order of their
  /// ranks. Other process sets go on, under their numbers, if all their members are left; the rest is over. Whoever is
  /// lost meanwhile is left out too. May be called without a loss: then the same ranks begin anew, and whatever the
  /// others have under way in set 0 fails.
  ///
  /// kTimeout when a rank that is alive does not come; kEvicted when the others went on without this one; kUnavailable
  /// when so many ranks are silent, not known to be dead, that another side may go on: this one must not.
  Status reform(Deadline deadline);

  /// Memory that peers on this host can read: what lies in it is reduced where it is, without a copy in, whether or not
  /// the other ranks' tensors lie in such memory. A reduction in place that fails may have changed it. It stays valid
  /// after shutdown(), until it is freed or the runtime ends.
  Result<std::span<std::byte>> allocate(uint64_t bytes) { return engine_->allocate(bytes); }
  void free(std::byte* memory) { engine_->free(memory); }

  /// What batches of the set of all ranks are run with now. The only set that is tuned.
  Tuning tuning() const;

  /// Begins the timeline and the metrics that knobs ask for, in place of those of `before`, which end; it may be null.
  /// The timeline has the generation in its name.
  void observe(Runtime* before, const std::string& generation);
  /// Writes this rank's timeline from now on; see timeline_path() for the name of its file. Another is finished first.
  Status start_timeline(const std::string& path, bool mark_cycles = false);
  /// The file is complete when this returns. Nothing happens when none is written.
  void stop_timeline();

  /// Numbers of this rank since its start; they can be read after the shutdown too.
  const Metrics& metrics() const { return metrics_; }
  /// The same for Prometheus.
  std::string metrics_text() const;
  /// Where they are served (HORO_METRICS_PORT); none when nobody asked for it.
  std::optional<net::Address> metrics_address() const;

  /// Everything under way ends with kStopped. Idempotent.
  void shutdown();

 private:
  /// A process keeps its seat, the number that the engine knows it by, as long as it lives. Its rank is its place among
  /// the seats that are taken. Seats are inside, ranks are what callers know.
  struct Seating {
    std::vector<int> seats;  ///< By rank, rising.
    int rank = 0;            ///< This process's.
    Position position;
  };
  struct Known {
    std::vector<int> seats;
    std::shared_ptr<ProcessSet> set;  ///< Null where this rank is not in it.
  };

  Runtime();
  void make_timeline();
  void begin_timeline(const Config& config, const std::string& generation);
  void begin_serving(const Config& config);
  void stop_serving();
  Status open(RuntimeOptions& options);
  Status open_rest(const RuntimeOptions& options);
  Status open_set(int number, const std::vector<int>& seats);
  Result<std::shared_ptr<ProcessSet>> make_set(int number, std::shared_ptr<group::Group> group, const Tuning& start,
                                               bool tunes, Deadline deadline = Deadline::never());
  std::shared_ptr<const Seating> seating() const;
  /// Where nobody sits there: kInvalidArgument.
  Result<std::vector<int>> seats_of(const std::vector<int>& ranks) const;
  std::vector<int> ranks_of(const std::vector<int>& seats) const;
  Result<std::shared_ptr<ProcessSet>> make_world(const std::vector<int>& seats, Deadline deadline);
  Status close_broken_sets(const std::vector<int>& seats, Deadline deadline);
  void take_seats(const std::vector<int>& seats, const std::shared_ptr<ProcessSet>& world);
  Result<std::shared_ptr<ProcessSet>> find(int set) const;
  /// Without a ring, which the first needs.
  struct HandedIn {
    Handle submission;
    size_t waiting = 0;  ///< See Queue::push().
  };
  static Result<HandedIn> hand_in(int set, ProcessSet& where, std::vector<Call> calls, Submission::Callback callback);
  Status check_new_set(const std::vector<int>& ranks) const;
  void begin_set(const Unit& unit, const Handle& handle);
  void end_set(const Unit& unit, const Handle& handle);
  /// Why this rank or another could not make a set.
  Status agree_on_set(const Status& mine);
  void close_set(int number, const Status& why);
  Result<int64_t> run_special(Tensor tensor);
  int free_number() const;
  bool drive_until(const Submission& submission, Deadline deadline, Submission::Until until);
  bool others_wait() const;
  /// Under the role; returns when to come again. `may_run`: operations too, where they are small.
  Deadline drive(bool may_spin, bool may_run);
  void loop(const std::stop_token& stop);
  /// Waits beside the thread that drives, until `handle` is done or the deadline.
  void wait_beside(const Submission& submission, Deadline deadline, Submission::Until until);
  /// The loop's own thread: false when it is to see to things now.
  bool rest_for_callers(const std::stop_token& stop);
  /// Tensors come in a row, and nobody waits for them yet: the loop's thread is to begin with them.
  void end_rest();
  std::unique_ptr<BufferPool> make_pool();

  std::unique_ptr<const NegotiationOptions> negotiation_;
  std::unique_ptr<group::Engine> engine_;
  std::unique_ptr<BufferPool> pool_;          ///< Of all sets; outlives them.
  std::unique_ptr<Timeline> timeline_;        ///< Uses the engine's log; used by the sets.
  Metrics metrics_;                           ///< Used by the sets.
  std::mutex role_;                           ///< Held by whoever drives the loop.
  std::atomic<bool> caller_drives_{false};    ///< Then the loop's own thread leaves it alone.
  std::atomic<Time> driven_at_{Time::min()};  ///< When the last caller left off driving.
  std::mutex rest_mutex_;
  std::condition_variable_any rest_;  ///< What the loop's thread sleeps on while it rests.
  int beside_ = 0;                    ///< Threads that wait and do not drive; it does not rest then.
  bool in_a_row_ = false;             ///< See end_rest().
  std::mutex reforming_;              ///< One reform() at a time.
  mutable std::mutex mutex_;
  std::shared_ptr<const Seating> seating_;
  std::map<int, Known> sets_;
  bool ended_ = false;
  Thread loop_;
  std::unique_ptr<MetricsServer> server_;  ///< Uses all of it.
};

}  // namespace horo::engine
