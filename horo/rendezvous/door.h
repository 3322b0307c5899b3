// How processes enter a running job, and how its ranks are told to leave: a few keys in the launcher's store.
//
// A process that comes later *knocks* and waits. The job looks at the door at its commits, begins a new *generation*
// with those that wait, and admits them: it tells each its rank there. A generation is joined like any job, under a
// name of its own; if somebody of it does not come, it is given up, and the newcomers knock again.
//
// A process whose slot is gone is asked to leave. If it is in the job it leaves at a commit; if it is not, it is
// refused at the door, whether it waits there or knocks later. What a knock comes to is one key of the store that is
// written once: a newcomer is admitted or refused, never both, whoever comes first.
//
// A process is known here by its seat (HORO_SEAT), which it keeps while its rank changes.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "horo/base/status.h"
#include "horo/rendezvous/store.h"

namespace horo::rendezvous {

struct Newcomer {
  int seat = 0;
  int attempt = 0;  ///< How often it has knocked, from 1.

  friend bool operator==(const Newcomer&, const Newcomer&) = default;
};

/// A newcomer's place in a generation.
struct Admission {
  std::string generation;
  int rank = 0;
  int size = 1;

  friend bool operator==(const Admission&, const Admission&) = default;
};

/// What waits for the job's next commit, by seats.
struct Changes {
  std::vector<Newcomer> newcomers;
  std::vector<int> leavers;  ///< Those whose slots are gone; they may have ended already.
};

/// Of one job. Calls end by their deadline, as those of the store do; kPeerLost when it is gone.
class Door {
 public:
  /// The store must outlive it.
  Door(Store& store, std::string job) : store_(store), job_(std::move(job)) {}

  // By a newcomer:
  Status knock(const Newcomer& self, Deadline deadline);
  /// kStopped when it is refused: its slot is gone.
  Result<Admission> await_admission(const Newcomer& self, Deadline deadline);
  /// It does not wait any more.
  void turn_away(const Newcomer& self, Deadline deadline);

  // By the lowest rank of the job:
  /// Waits until there has been a `number`-th piece of news, from 1: somebody has knocked, or is to leave.
  Status await_news(uint64_t number, Deadline deadline);
  Result<Changes> look(Deadline deadline);
  /// A name that no other generation has.
  Result<std::string> begin_generation(Deadline deadline);
  /// kPeerLost when it has been refused meanwhile.
  Status admit(const Newcomer& who, const Admission& admission, Deadline deadline);

  // By everybody who joins a generation:
  /// It will not come about: whoever waits for it need not. The first reason stays.
  void give_up(const std::string& generation, const std::string& why, Deadline deadline);
  /// kPeerLost with the reason, when somebody has given it up.
  Status check(const std::string& generation, Deadline deadline);

  // By the launcher:
  /// Whether it is in the job or not.
  Status ask_to_leave(int seat, const std::string& why, Deadline deadline);
  /// Seats that came later and were let in, whether they run or not. Those who knock again were not, after all.
  Result<std::set<int>> admitted(Deadline deadline);
  /// The process of a newcomer has ended: the job does not wait for it, and does not look for it at the door.
  void newcomer_ended(int seat, Deadline deadline);

 private:
  Status ring(Deadline deadline);
  Status refuse(const Newcomer& who, Deadline deadline);
  /// Who waits under this key and those that begin with it.
  Result<std::vector<Newcomer>> waiting(const std::string& prefix, Deadline deadline);
  std::string door_of(const Newcomer& who) const;
  std::string verdict_of(const Newcomer& who) const;
  std::string key(const std::string& rest) const;

  Store& store_;
  const std::string job_;
};

}  // namespace horo::rendezvous
