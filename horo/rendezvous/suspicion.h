// Silence is not death: whom to ask, whom to name in the log, and whom to give up.
//
// A pure state machine. Only ranks that are waited for are ever asked, so an idle job sends nothing. A rank whose
// progress thread answers may be late without limit.
//
// A rank that hears nobody is cut off itself, and must not evict the others: when it is heard again they would believe
// it. So where a job has a quorum (watch::Job), a rank asks all others of the job for their *consent* before it evicts
// somebody, again and again while that one is silent. With the consent of a quorum it evicts. Without an answer of one
// it is on the smaller side: it gives up all that it does not hear, at once, so that whoever is told sees that the
// sender has no quorum (horo/rendezvous/membership.h). Between two ranks that hear everybody but each other, whom
// the others consent to decides: nobody consents to what a rank wants that it has just consented to evict.
#pragma once

#include <map>
#include <optional>
#include <variant>
#include <vector>

#include "horo/base/deadline.h"
#include "horo/rendezvous/lost_set.h"

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
/// The job that has a quorum or has not, this rank included, sorted. Empty, as at first: evicting needs nobody's
/// consent.
struct Job {
  int self = 0;
  std::vector<int> ranks;
};
/// All that are known to be gone.
struct Gone {
  std::vector<Loss> losses;
};
/// `rank` does not hear `silent`, and asks whether they may be evicted. Answered by Consent.
struct Asked {
  int rank = 0;
  std::vector<int> silent;
};
/// The answer to AskConsent.
struct Consented {
  int rank = 0;
  bool agrees = false;
};
struct Tick {};
using Input = std::variant<WaitingOn, Answered, Job, Gone, Asked, Consented, Tick>;

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
struct AskConsent {
  int rank = 0;
  std::vector<int> silent;
};
struct Consent {
  int rank = 0;  ///< Who asked.
  bool agrees = false;
};
/// All of them together.
struct Evict {
  std::vector<int> ranks;
  Duration silent{};       ///< The longest of them.
  bool has_quorum = true;  ///< Else this rank is on the smaller side.
};
using Output = std::variant<Probe, Name, Recover, AskConsent, Consent, Evict>;

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
  /// Somebody whose consent is asked for.
  struct Voter {
    std::optional<Time> asked;     ///< The question without an answer.
    std::optional<Time> answered;  ///< When the question was asked that was answered last.
    bool agrees = false;
  };

  void on(const watch::WaitingOn& waiting, Time now);
  void on(const watch::Answered& answered, Time now);
  void on(const watch::Job& job, Time now);
  void on(const watch::Gone& gone, Time now);
  void on(const watch::Asked& asked, Time now);
  void on(const watch::Consented& consented, Time now);
  void on(const watch::Tick& tick, Time now);
  void look_at(int rank, Peer& peer, Time now);
  void start_anew(Time now);
  void plan(Time now);

  std::vector<int> silent_for(Duration limit, Time now) const;
  void ask_for_consent(Time now);
  void judge(Time now);
  void evict(const std::vector<int>& ranks, bool has_quorum, Time now);
  bool is_quorum(std::vector<int> members) const;
  bool is_gone(int rank) const;
  /// The question without an answer, as a peer or as a voter.
  std::optional<Time> asked_since(int rank) const;
  /// Consent is asked for so long before the limit, and counts for so long; who has given it does not give it to the
  /// other side for longer.
  Duration lead() const;

  Options options_;
  std::map<int, Peer> peers_;
  std::optional<Time> due_;
  watch::Job job_;
  std::vector<Loss> losses_;
  std::map<int, Voter> voters_;    ///< While somebody is about to be evicted.
  std::optional<Time> ask_again_;  ///< All voters that have answered.
  std::map<int, Time> condemned_;  ///< Whose eviction this rank has consented to, and when.
  std::vector<watch::Output> out_;
};

}  // namespace horo::rendezvous
