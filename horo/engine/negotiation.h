// How the members of a process set agree what to run, and in which order: one member's side of it.
//
// A member tells its parent in the tree what it and all below it have handed in. At the root a unit is therefore known
// to be ready on every member. The root decides what is run together and in which order and tells everybody, through
// the tree again. Messages flow only when something is handed in, becomes ready, or is awaited; between two members
// they arrive in order, and that is all the protocol needs.
//
// Every message of the root goes to everybody in the same order. So all members hold the same cache and run the same
// batches, and no answer to a message from below is ever needed.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "horo/base/deadline.h"
#include "horo/base/recycled_map.h"
#include "horo/base/status.h"
#include "horo/engine/cache.h"
#include "horo/engine/coordinator.h"
#include "horo/engine/merge.h"
#include "horo/engine/message.h"
#include "horo/engine/tree.h"
#include "horo/engine/tuner.h"

namespace horo::engine {

struct NegotiationOptions {
  CoordinatorOptions coordinator;
  Duration stall_warning = std::chrono::seconds(60);  ///< Zero: never.
  Duration stall_abort = Duration::zero();            ///< Zero: never.
  std::optional<TunerOptions> tuner;                  ///< Used at the root alone.
};

namespace output {
struct Send {
  int to = 0;
  std::vector<std::byte> message;
};
/// These units are one operation. Batches are run in the order in which they come.
struct Run {
  std::vector<UnitPtr> units;
};
struct Fail {
  std::string key;
  std::string message;
};
/// What the batches that follow are run with.
struct Tune {
  Tuning tuning;
};
/// At the root: what the tuner has measured. `gain` when it is done.
struct Tuned {
  std::vector<Measured> measured;
  std::optional<double> gain;
};
/// Everybody has joined.
struct Joined {
  int last = 0;
};
/// At the root: a unit that some members have not handed in for long.
struct Stall {
  std::string key;
  std::vector<int> missing;
  Duration waited{};
};
/// Nothing goes on.
struct Abort {
  std::string message;
};
}  // namespace output
using Output = std::variant<output::Send, output::Run, output::Fail, output::Tune, output::Tuned, output::Joined,
                            output::Stall, output::Abort>;

/// Pure: no clock, no thread, no wire.
class Negotiation {
 public:
  Negotiation(Tree tree, NegotiationOptions options);

  /// This rank hands a unit in. Its names must not be handed in again before they are answered.
  void announce(const UnitPtr& unit, Time now);
  /// This rank has no more; until everybody has joined it takes part with nothing.
  void join();
  /// What the members are called in messages from now on.
  void call_members(const std::vector<int>& ranks);
  /// Whether a thread of this rank sleeps until something is done.
  void set_waiting(bool waiting) { waiting_ = waiting; }
  /// kCorrupt for a message that cannot be.
  Status receive(int from, std::span<const std::byte> message, Time now);
  /// What is to be done after all that has happened. To be called again by next().
  std::vector<Output> step(Time now);
  Deadline next() const;

  /// Neighbours whose word is waited for: children that have not handed in what others have, or not joined when this
  /// rank has, and the parent as long as something of this rank is unanswered.
  std::set<int> awaited(bool unanswered) const;

  /// Units that all members at and below a child have handed in, as they come: for the timeline.
  struct Ready {
    std::string key;
    std::vector<int> members;
  };
  void note_ready(bool wanted) { notes_ready_ = wanted; }
  std::vector<Ready> take_ready() { return std::exchange(ready_, {}); }

  /// This rank has, and not everybody else.
  bool joined() const { return merge_.joined(tree_.self); }
  bool is_root() const { return tree_.is_root(); }
  size_t cached() const { return cache_.size(); }
  size_t incomplete() const { return merge_.size(); }
  struct Counters {
    uint64_t known = 0;    ///< Units handed in here whose number was enough.
    uint64_t in_full = 0;  ///< Others.
  };
  const Counters& counters() const { return counters_; }
  Coordinator& coordinator() { return coordinator_; }

 private:
  void on_up(size_t child, const Up& up, Time now);
  void on_down(Down down, Time now);
  void announce_in_full(const Unit& unit, Time now);
  UnitPtr take_announced(uint32_t id);
  /// Whether a child below, when it said so, had not heard yet that this unit has failed. It was asked to say again in
  /// full what it had said by a number, but another had passed its word on in full already: nobody waits for it.
  bool outdated(const std::string& key, const Up& up) const;
  void apply_joins();
  void note_ready_of(size_t child, const Up& up);
  void gather(Up& up);
  void lead(Time now, bool stalls);
  void report_stalls(Up& up, Time now);
  void abort_when_stalled(Down& down, Time now);
  /// Whether anything may have stalled: looking at every unit is for then only.
  bool stalls_due(Time now);
  std::optional<Time> next_stall_check() const;
  /// The coordinator gives up, once and for everybody.
  bool may_abort() const { return is_root() && !aborted_ && options_.stall_abort > Duration::zero(); }
  bool anybody_waits() const;
  void send_down(const Down& down);
  void tune(Down& down, Time now);

  const Tree tree_;
  NegotiationOptions options_;  ///< Only the names of the members change.
  Cache cache_;
  Merge merge_;
  Coordinator coordinator_;
  std::optional<Tuner> tuner_;  ///< Until it is done.
  bool waiting_ = false;
  bool told_waiting_ = false;
  bool aborted_ = false;
  bool notes_ready_ = false;
  std::optional<Time> stall_check_;  ///< Never later than the first unit that is incomplete now can stall.
  std::vector<bool> child_waits_;
  uint64_t heard_ = 0;                                   ///< Messages of the root; the same numbers everywhere.
  std::vector<uint64_t> child_heard_;                    ///< How many of them the children have.
  std::unordered_map<std::string, uint64_t> failed_at_;  ///< Units, until all children have heard of their failure.
  std::vector<int> joining_;                             ///< Have said so; taken as joined in the next step that may.
  std::vector<int> newly_joined_;                        ///< To be passed on.
  std::optional<int> last_joined_;
  /// Units of this rank that were announced by number and not answered yet.
  RecycledMap<uint32_t, UnitPtr> announced_;
  std::vector<Output> outputs_;
  std::vector<Ready> ready_;
  Counters counters_;
};

/// What a stall report says to people.
std::string stall_text(const output::Stall& stall, const std::vector<int>& ranks);

}  // namespace horo::engine
