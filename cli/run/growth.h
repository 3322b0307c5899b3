// The driver of an elastic job: asks the script for hosts, keeps the roster, stands at the door. What is to be done
// with hosts and ranks is for the launcher, which calls this in its loop.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/run/discovery_script.h"
#include "cli/run/door_watch.h"
#include "cli/run/options.h"
#include "cli/run/roster.h"

#include "horo/net/poller.h"

namespace horo::cli::launch {

class Growth {
 public:
  /// Of the poller's tokens, three from this one on are its own.
  static constexpr uint64_t kFirstToken = 4;

  Growth(const RunOptions& options, net::Poller& poller, Time now);
  ~Growth();
  Growth(const Growth&) = delete;
  Growth& operator=(const Growth&) = delete;

  /// The ranks have been started, and the store is at this address.
  Status begin(const net::Address& store, const rendezvous::TcpStoreOptions& options);
  Roster& roster() { return roster_; }

  void take_event(uint64_t token);
  /// What the script has left behind in its session goes with it. Call it before a child is reaped.
  void before_reaping(pid_t pid) const;
  /// Whether it was the script's.
  bool note_exit(pid_t pid, int status);

  void ask_to_leave(int seat, const std::string& why);
  void newcomer_started(int seat) { newcomers_.insert(seat); }
  void rank_ended(const RankEnd& end, Time now);
  /// Whether nobody knows yet if it had been let in, a newcomer that has ended: step() gives it back when that is
  /// known.
  bool holds_back(const RankEnd& end);
  /// The answer comes with step().
  void look();

  struct Ended {
    RankEnd end;
    bool was_admitted = false;
  };
  struct Step {
    std::vector<Roster::Step> steps;
    std::vector<std::string> words;
    std::optional<std::set<int>> admitted;  ///< Seats that came later and are ranks now.
    bool looked = false;
    std::vector<Ended> ended;
  };
  Step step(Time now);
  Deadline deadline() const;
  /// Processes that came later and still run.
  const std::set<int>& newcomers() const { return newcomers_; }

 private:
  void run_script(Time now);
  void watch(bool watched);

  net::Poller& poller_;
  Roster roster_;
  std::optional<Discovery> discovery_;
  std::optional<DiscoveryScript> script_;
  bool output_watched_ = false;
  bool error_watched_ = false;
  std::unique_ptr<DoorWatch> door_;
  std::set<int> newcomers_;
  std::map<int, RankEnd> held_back_;
  bool nobody_to_ask_ = false;  ///< look() was called without a door.
};

}  // namespace horo::cli::launch
