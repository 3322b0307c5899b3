// Which hosts and slots an elastic job has, who sits where, and who comes next. Pure: what happened goes in, what is to
// be done comes out.
//
// A slot whose rank fails is not used again, or, with a cooldown, only after a while that doubles each time; so is a
// host that cannot be reached or is lost. Slots that are offered and free get a newcomer, up to the most ranks that are
// wanted. Ranks whose slots are gone are asked to leave. A rank is known by its seat, which nobody gets twice.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cli/run/hosts.h"
#include "cli/run/life.h"

#include "horo/base/deadline.h"

namespace horo::cli::launch {

struct Cooldown {
  Duration least{};
  Duration most{};
};

struct RosterOptions {
  int most_ranks = 0;  ///< 0: as many as there are slots.
  std::optional<Cooldown> cooldown;
  bool discovers = false;  ///< Hosts and slots may come and go.
  Duration start_timeout = std::chrono::seconds(30);
  /// For ranks that are asked to leave; then they are ended.
  Duration leave_limit = std::chrono::seconds(600);
  uint64_t seed = 1;  ///< Of what is added to a cooldown, so that slots do not come back all at once.
};

class Roster {
 public:
  struct Step {
    enum class Kind : uint8_t {
      kReach,    ///< Start an agent on the host; then host_ready() or host_lost().
      kGiveUp,   ///< The host did not answer: let go of it.
      kRelease,  ///< The host has no ranks and no slots any more: its agent may go.
      kStart,    ///< Start a newcomer with this seat in this slot of the host.
      kLeave,    ///< Ask the rank to leave.
      kEnd,      ///< End the rank.
      kSay,
    };
    Kind kind;
    std::string host;
    int seat = 0;
    int slot = 0;
    int slots = 0;  ///< Of the host.
    std::string words;
  };

  /// `hosts`: all that is offered; `placement`: the ranks that the job starts with, on those hosts.
  Roster(RosterOptions options, const std::vector<Host>& hosts, const Placement& placement);

  void offered(const std::vector<Host>& hosts, Time now);
  void host_ready(const std::string& host);
  void host_lost(const std::string& host, const std::string& why, Time now);
  void rank_ended(const RankEnd& end, Time now);
  void rank_admitted(int seat, bool admitted);
  bool is_admitted(int seat) const;
  /// One that was asked to leave had not been admitted, and will not be: nobody waits for it to leave.
  void refused(int seat);
  /// Training is at its end: nobody is needed any more.
  void stop() { stopped_ = true; }

  /// Call it after anything happened, and when deadline() has passed.
  std::vector<Step> step(Time now);
  Deadline deadline() const;
  /// Whether somebody may still come.
  bool may_grow() const;

  /// Exactly what a slot or host waits after it has failed `failures` times, without what chance adds.
  static Duration wait_after(const Cooldown& cooldown, int failures);

 private:
  struct Seat {
    std::string host;
    int slot = 0;
    bool admitted = true;
    bool leaving = false;
    bool ending = false;
    Deadline leave_by;
  };
  /// For a slot or a host that failed.
  struct Penalty {
    int failures = 0;
    std::optional<Time> until;  ///< Nothing: it is used. Time::max(): for good.
    bool holds(Time now) const { return until && now < *until; }
  };
  enum class Reach : uint8_t { kNone, kAsked, kReady };
  struct Place {
    int slots = 0;  ///< Offered.
    Reach reach = Reach::kNone;
    Deadline answer_by;
    Penalty penalty;
    std::map<int, Penalty> slot_penalties;
  };

  std::string punish(Penalty& penalty, Time now);
  int staying(const std::string& host) const;
  int staying() const;
  bool has_seats(const std::string& host) const;
  void give_up_silent_hosts(Time now);
  void ask_to_leave(Time now);
  void ask(int number, Seat& seat, Time now);
  void end_those_who_stay(Time now);
  void fill(Time now);
  void fill(const std::string& name, Place& place, Time now);
  void note_cooling(const Place& place, Time now);
  std::optional<int> free_slot(const std::string& name, const Place& place, Time now) const;
  void release_hosts();
  bool has_slot_left(const std::string& name, const Place& place) const;
  void say(std::string words) { steps_.push_back({.kind = Step::Kind::kSay, .host = {}, .words = std::move(words)}); }

  RosterOptions options_;
  std::mt19937_64 random_;
  std::vector<std::string> order_;  ///< Hosts as they were first named.
  std::map<std::string, Place> places_;
  std::map<int, Seat> seats_;  ///< Of processes that run.
  int next_seat_ = 0;
  bool stopped_ = false;
  bool told_of_last_ = false;
  std::vector<Step> steps_;
  Deadline cools_;  ///< When the next slot or host may be used again.
};

}  // namespace horo::cli::launch
