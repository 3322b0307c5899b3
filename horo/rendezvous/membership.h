// Who is in the job, and how every operation that was under way when someone was lost ends equally on all survivors.
//
// A pure state machine: no thread, socket, clock or log. One loop feeds it and carries out what it asks for.
//
// Words. The *lost set* L of a rank only grows; it names the *view* that the rank is moving to, whose members are all
// ranks minus L and whose epoch is base_epoch + |L|. A *round* is the agreement about one L:
//   1. Whoever learns of a loss tells everyone (Revoke) and stops its groups that have a lost member.
//   2. When all of these have reported how far they came, the rank sends Flush{L, reports} to everyone.
//   3. With the Flush for exactly this L of every rank outside of L, each rank decides alone and equally: in a group,
//   what
//      any survivor has completed succeeds everywhere, re-served by one who holds it; everything later fails
//      everywhere. The view is installed.
//   4. A rank that holds all that it needs says Stable{L}; when everyone has, retained results may be dropped.
// A further loss at any step begins a new round with fresh reports. As each rank's L only grows and an installed view
// needs a Flush of every one of its members, installed views form a chain.
//
// A rank that is cut off finds everybody else silent. When it is heard again, its word would evict those who are many.
// So where a job has a quorum (input::Job), the word of a side that has none is not taken: its sender counts as gone.
//
// What the groups must provide:
//   - An operation is reported `completed` before its caller is told, `held` when its result is wholly here.
//   - A result is retained until no member can lack it: symmetric operations need the last one, rooted operations as
//     many as the window; after a revocation everything stays until Release.
//   - An operation whose result differs between ranks completes only when every member is known to hold its own part,
//   for
//     nobody could re-serve it.
//   - No operation completes anywhere before the group is opened on every member (its first operation is symmetric).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "horo/base/awake_limit.h"
#include "horo/rendezvous/lost_set.h"
#include "horo/rendezvous/message.h"

namespace horo::rendezvous {

namespace input {

/// A group begins. With a member that is already lost it is decided at once: nothing in it succeeds.
struct Opened {
  uint64_t group = 0;
  std::vector<int> members;  ///< Ranks, this one included.
};
/// A group has ended here, and on every other member that is not lost.
struct Closed {
  uint64_t group = 0;
};
/// A member is gone, by a sign that is certain, or by decision of the suspicion.
struct Lost {
  Loss loss;
};
/// These have not answered for too long, all of them: they are evicted together.
struct Silent {
  std::vector<int> ranks;
};
/// The ranks that have a quorum or have not, this one included, sorted. Empty, as at first: nobody asks for one, and
/// whoever tells that it has evicted somebody is believed.
struct Job {
  std::vector<int> ranks;
};
struct Received {
  int from = 0;
  Message message;
};
/// The answer to output::Revoke: the group's executing thread has left its operation. Nothing but a re-served result
/// changes the group from now on.
struct Reported {
  uint64_t epoch = 0;  ///< As in the Revoke. Answers to an earlier Revoke are ignored.
  Report report;
};
/// The group holds everything that output::Decide declared a success.
struct Settled {
  uint64_t epoch = 0;  ///< As in the Decide.
  uint64_t group = 0;
};
/// This rank says goodbye. The machine is silent afterwards.
struct Leave {};
struct Tick {};

}  // namespace input

using Input = std::variant<input::Opened, input::Closed, input::Lost, input::Silent, input::Job, input::Received,
                           input::Reported, input::Settled, input::Leave, input::Tick>;

/// Operations first..last of a group, to or from `peer`.
struct Transfer {
  int peer = 0;
  uint64_t first = 0;
  uint64_t last = 0;
  friend bool operator==(const Transfer&, const Transfer&) = default;
};

namespace output {

struct Send {
  std::vector<int> to;
  Message message;
};
/// Stop these groups and answer with input::Reported, each of them. Asked again whenever another rank is lost.
struct Revoke {
  uint64_t epoch = 0;
  std::vector<uint64_t> groups;
  LostSet lost;
};
/// Operations up to `final` succeed, later ones fail with `lost`. A later Decide of the same group replaces an earlier
/// one; its `final` is never higher, and never below what this rank has completed.
struct Decide {
  uint64_t epoch = 0;
  uint64_t group = 0;
  uint64_t final = 0;
  LostSet lost;
  std::vector<Transfer> serve;    ///< Results to send to members that lack them.
  std::optional<Transfer> await;  ///< Results that will come.
};
/// The view is agreed. Comes after the decisions of its round.
struct Install {
  uint64_t epoch = 0;
  std::vector<int> members;
  LostSet lost;
};
/// Nobody lacks anything of these groups any more: retained results may go.
struct Release {
  uint64_t epoch = 0;
  std::vector<uint64_t> groups;
};
/// The others went on without this rank. The machine is silent afterwards.
struct Fence {
  int by = 0;
  LossReason reason = LossReason::kFrozen;
};

}  // namespace output

using Output =
    std::variant<output::Send, output::Revoke, output::Decide, output::Install, output::Release, output::Fence>;

class Membership {
 public:
  struct Options {
    int rank = 0;
    int size = 1;
    uint64_t base_epoch = 0;
    /// A member that takes longer than this to flush is evicted, though its progress thread may answer. The time that
    /// this rank itself was paused does not count: the others may have been paused with it.
    Duration flush_timeout = std::chrono::seconds(30);
  };

  explicit Membership(const Options& options);

  std::vector<Output> step(const Input& input, Time now);

  /// When a Tick is needed; nothing when no round is under way.
  std::optional<Time> next_tick() const;
  /// Ranks whose Flush or Stable is missing: for the suspicion to watch. Sorted.
  std::vector<int> waiting_for() const;

  /// Of the installed view.
  uint64_t epoch() const { return options_.base_epoch + installed_.size(); }
  std::vector<int> members() const { return survivors(installed_); }
  /// May be ahead of the installed view.
  const LostSet& lost() const { return lost_; }
  /// Fenced, or left.
  bool ended() const { return ended_; }

 private:
  /// What a peer has said about exactly the current L.
  struct Word {
    std::optional<std::vector<Report>> reports;
    bool stable = false;
  };
  enum class Phase : uint8_t { kInstalled, kReporting, kFlushed, kDecided };

  void on(const input::Opened& opened, Time now);
  void on(const input::Closed& closed, Time now);
  void on(const input::Lost& lost, Time now);
  void on(const input::Silent& silent, Time now);
  void on(const input::Job& job, Time now);
  void on(const input::Received& received, Time now);
  void on(const input::Reported& reported, Time now);
  void on(const input::Settled& settled, Time now);
  void on(const input::Leave& leave, Time now);
  void on(const input::Tick& tick, Time now);

  /// Whether those who say that these are gone may go on: else what they say counts for nothing.
  bool may_go_on_without(const LostSet& lost) const;
  void grow(const LostSet& more, int by, Time now);
  void begin_round(const LostSet& before, Time now);
  void flush_when_reported(Time now);
  void decide_when_flushed();
  output::Decide decision(uint64_t group, const std::vector<int>& members) const;
  void stable_when_settled();
  void release_when_stable();
  void send_to_survivors(MessageKind kind, std::vector<Report> reports);

  std::vector<int> survivors(const LostSet& lost) const;
  uint64_t target_epoch() const { return options_.base_epoch + lost_.size(); }

  const Options options_;
  std::map<uint64_t, std::vector<int>> groups_;
  std::vector<int> job_;
  LostSet lost_;
  LostSet installed_;
  bool ended_ = false;

  // The round about lost_.
  Phase phase_ = Phase::kInstalled;
  AwakeLimit limit_;  ///< For the others' words, since this rank has given its own.
  std::set<uint64_t> unreported_;
  std::map<uint64_t, Report> reports_;
  std::set<uint64_t> unsettled_;
  std::map<int, Word> words_;

  std::vector<Output> out_;
};

}  // namespace horo::rendezvous
