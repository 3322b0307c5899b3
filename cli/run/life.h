// The life of a job as a pure state machine: what happened goes in, what is to be done comes out. No clock, process or
// descriptor in here.
//
//   kStarting --all hosts ready--> kRunning --all ranks ended well--> kEnding --all hosts ended--> kDone
//       |                              |                                 ^
//       +---- host lost, too slow, signal, rank failed, ... -------------+
//
// An elastic job (least_ranks) goes on without ranks and hosts that fail, as long as enough are left, and ends well if
// those end well that are left then. With too few it waits, while others may come. Ranks and hosts may be added: a
// *newcomer* is a process that the ranks have not admitted yet; it counts for nothing, and ends with the job.
//
// Whatever ends a job early, the first reason stays: it decides the exit code and is what the summary tells.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "horo/base/deadline.h"
#include "horo/base/status.h"

namespace horo::cli::launch {

/// How a rank ended.
struct RankEnd {
  int rank = 0;
  int code = 0;        ///< Of exit(); 0 when a signal ended it.
  int signal = 0;      ///< The signal that ended it, or 0.
  bool asked = false;  ///< We had sent it that signal.
  std::string error;   ///< Why it did not even start.

  bool failed() const { return code != 0 || signal != 0; }
  /// As shells have it: 128 + signal.
  int exit_code() const { return signal != 0 ? 128 + signal : code; }
};

struct LifeOptions {
  std::vector<std::string> hosts;
  std::vector<int> ranks_per_host;
  Duration start_timeout = std::chrono::seconds(30);
  /// Between asking ranks to end (SIGTERM) and ending them (SIGKILL).
  Duration grace = std::chrono::seconds(5);
  /// A rank that fails costs its slot alone as long as so many others are left; 0: it ends the job.
  int least_ranks = 0;
  /// How long a job with fewer waits for others, if any can come.
  Duration elastic_timeout = std::chrono::seconds(600);
};

class JobLife {
 public:
  enum class Phase : uint8_t { kStarting, kRunning, kEnding, kDone };
  /// What the launcher is to do.
  struct Action {
    enum class Kind : uint8_t {
      kStart,    ///< Tell all hosts to start their ranks.
      kEnd,      ///< Tell a host to end its ranks within the grace period.
      kEndNow,   ///< The same, without a grace period.
      kAbandon,  ///< Let go of all hosts: they did not end in time.
      kLook,     ///< Look who has been admitted, and call looked(): only newcomers seem to be left.
      kSay,      ///< Tell the user.
    };
    Kind kind;
    size_t host = 0;
    std::string words = {};
  };
  /// Why the job ended early.
  struct Failure {
    enum class Kind : uint8_t { kRank, kHost, kSignal, kOther };
    Kind kind = Kind::kOther;
    RankEnd rank;       ///< kRank
    int signal = 0;     ///< kSignal
    std::string words;  ///< All others.
    Time at{};
  };

  JobLife(LifeOptions options, Time now);

  void host_ready(size_t host, Time now);
  void host_lost(size_t host, const std::string& why, Time now);
  void host_ended(size_t host, Time now);
  void rank_ended(const RankEnd& end, Time now);
  /// An elastic job: a host that may be ready later; its number. Nothing depends on it before it is.
  size_t add_host(const std::string& name);
  /// A newcomer.
  void add_rank(int rank, size_t host);
  /// It has become a rank of the job; or not, after all.
  void rank_admitted(int rank, bool admitted, Time now);
  /// Its slot is gone: however it ends, it has left.
  void rank_is_leaving(int rank);
  /// Whether ranks may still come to a job that has too few.
  void others_may_come(bool may, Time now);
  void looked(Time now);
  /// The user, or somebody else, wants the job to end. Ctrl-C while it ends: at once.
  void signalled(int number, Time now);
  /// Something else that makes it impossible to go on.
  void fail(const std::string& why, Time now);
  /// Call it when deadline() has passed.
  void tick(Time now);

  std::vector<Action> take_actions();
  Deadline deadline() const;
  Phase phase() const { return phase_; }
  const std::optional<Failure>& failure() const { return failure_; }
  /// Of the launcher, once kDone.
  int exit_code() const;
  /// Ranks that failed before anybody asked them to end, beside the first.
  const std::vector<RankEnd>& also_failed() const { return also_failed_; }
  /// Of a rank that was there from the start or added; an index of add_host().
  std::optional<size_t> host_of(int rank) const;
  const std::string& host_name(size_t host) const { return options_.hosts[host]; }
  std::vector<int> ranks_of(size_t host) const;
  bool has_ended(int rank) const;
  /// Training has come to its end for somebody: nobody else is needed.
  bool somebody_ended_well() const { return somebody_ended_well_; }

  /// A rank that a signal of somebody else's killed explains exit codes that came this much earlier: its peers notice
  /// its death sooner than the kernel has torn it down.
  static constexpr Duration kCauseWindow = std::chrono::seconds(1);
  /// Beyond the grace period: for hosts to kill what is left and to say so.
  static constexpr Duration kLastWords = std::chrono::seconds(5);
  /// When the user is told who is missing, and again each time.
  static constexpr Duration kPatience = std::chrono::seconds(5);

 private:
  enum class HostState : uint8_t { kAwaited, kComing, kReady, kEnded, kLost };
  struct Seat {
    size_t host = 0;
    bool admitted = true;
    bool leaving = false;
    bool ended = false;
  };

  void begin_failure(Failure failure, Time now);
  bool is_elastic() const { return options_.least_ranks > 0; }
  void lose_rank(const RankEnd& end, Time now);
  void rank_left(const RankEnd& end, Time now);
  void note_lost(const RankEnd& end, Time now);
  void judge(Time now);
  void judge_the_end(Time now);
  void give_up_waiting(const std::string& why, Time now);
  std::string too_few() const;
  bool has_newcomers() const;
  void begin_ending(Time now, bool at_once);
  void finish_if_all_ended();
  void say(std::string words) { actions_.push_back({Action::Kind::kSay, 0, std::move(words)}); }
  std::string names_of(HostState state) const;
  bool all_hosts_are_gone() const;

  LifeOptions options_;
  Phase phase_ = Phase::kStarting;
  std::vector<HostState> hosts_;
  std::map<int, Seat> seats_;
  int ranks_left_ = 0;  ///< Without newcomers.
  bool somebody_ended_well_ = false;
  bool last_ended_well_ = false;
  bool others_may_come_ = false;
  bool looking_ = false;
  Deadline wait_until_;                ///< With too few ranks.
  std::optional<Failure> first_lost_;  ///< Of an elastic job, which may go on without it.
  std::optional<Failure> failure_;
  std::vector<RankEnd> also_failed_;
  std::vector<Action> actions_;
  Time started_;
  Time say_at_;
  Deadline end_by_;
};

}  // namespace horo::cli::launch
