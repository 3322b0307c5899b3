// Silence is not death: whom to ask, whom to name in the log, and whom to give up.
//
// A pure state machine. Only ranks that are waited for are ever asked, so an idle job sends nothing. A rank whose
// progress thread answers may be late without limit.
#pragma once

#include <map>
#include <optional>
#include <variant>
#include <vector>

#include "horo/base/deadline.h"

namespace horo::rendezvous {

namespace watch {

/// Everyone who is waited for now, and since when; replaces what was said before.
struct WaitingOn {
  std::vector<int> ranks;
  Time since{};
};
/// An answer to a probe, or any other sign of the peer's progress thread.
struct Answered {
  int rank = 0;
};
struct Tick {};
using Input = std::variant<WaitingOn, Answered, Tick>;

struct Probe {
  int rank = 0;
};
/// Silent for so long that people want to know.
struct Name {
  int rank = 0;
  Duration silent{};
};
/// A named rank has answered.
struct Recover {
  int rank = 0;
};
struct Evict {
  int rank = 0;
  Duration silent{};
};
using Output = std::variant<Probe, Name, Recover, Evict>;

}  // namespace watch

class Suspicion {
 public:
  struct Options {
    Duration patience = std::chrono::milliseconds(100);    ///< Waiting longer than this, a rank asks.
    Duration interval = std::chrono::milliseconds(200);    ///< Between an answer and the next question; between ticks.
    Duration name_after = std::chrono::milliseconds(500);  ///< Of a question without an answer.
    Duration freeze_timeout = std::chrono::seconds(10);    ///< Of a question without an answer.
    /// A tick that comes this many intervals late shows that the observer itself was paused: it starts anew.
    int pause_intervals = 2;
  };

  Suspicion() = default;
  explicit Suspicion(const Options& options) : options_(options) {}

  std::vector<watch::Output> step(const watch::Input& input, Time now);
  /// When a Tick is needed; nothing when nobody is waited for.
  std::optional<Time> next_tick() const { return due_; }

 private:
  struct Peer {
    Time ask_at{};              ///< When to ask next, if nothing is asked.
    std::optional<Time> asked;  ///< The question without an answer.
    bool named = false;
  };

  void on(const watch::WaitingOn& waiting, Time now);
  void on(const watch::Answered& answered, Time now);
  void on(const watch::Tick& tick, Time now);
  void look_at(int rank, Peer& peer, Time now);
  void start_anew(Time now);
  void plan(Time now);

  Options options_;
  std::map<int, Peer> peers_;
  std::optional<Time> due_;
  std::vector<watch::Output> out_;
};

}  // namespace horo::rendezvous
