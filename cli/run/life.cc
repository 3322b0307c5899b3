#include "cli/run/life.h"

#include <algorithm>
#include <utility>

#include "horo/base/text.h"

namespace horo::cli::launch {

namespace {

using Kind = JobLife::Action::Kind;

double seconds_of(Duration span) { return std::chrono::duration<double>(span).count(); }

constexpr int kFailed = 1;
constexpr int kSignalBase = 128;
constexpr int kInterrupt = 2;  // SIGINT, on every Linux.

}  // namespace

JobLife::JobLife(LifeOptions options, Time now)
    : options_(std::move(options)),
      hosts_(options_.hosts.size(), HostState::kAwaited),
      started_(now),
      say_at_(now + kPatience) {
  for (int ranks : options_.ranks_per_host) ranks_left_ += ranks;
}

void JobLife::host_ready(size_t host, Time) {
  if (hosts_[host] != HostState::kAwaited) return;
  hosts_[host] = HostState::kReady;
  if (phase_ == Phase::kEnding) {
    actions_.push_back({Kind::kEnd, host});
    return;
  }
  const bool all = std::all_of(hosts_.begin(), hosts_.end(), [](HostState s) { return s == HostState::kReady; });
  if (phase_ != Phase::kStarting || !all) return;
  phase_ = Phase::kRunning;
  actions_.push_back({Kind::kStart});
}

void JobLife::host_lost(size_t host, const std::string& why, Time now) {
  if (hosts_[host] == HostState::kEnded || hosts_[host] == HostState::kLost) return;
  hosts_[host] = HostState::kLost;
  const Failure lost{Failure::Kind::kHost, {}, 0, text("host ", options_.hosts[host], ": ", why), now};
  if (phase_ == Phase::kRunning && is_elastic()) {
    actions_.push_back({Kind::kSay, 0, text(lost.words, "; its ranks count as lost")});
    if (!first_lost_) first_lost_ = lost;
    int first = 0;
    for (size_t before = 0; before < host; ++before) first += options_.ranks_per_host[before];
    for (int rank = first; rank < first + options_.ranks_per_host[host]; ++rank) {
      if (phase_ == Phase::kRunning && ended_.insert(rank).second) lose_rank({rank, kFailed, 0, false, why}, now);
    }
  } else if (phase_ == Phase::kStarting || phase_ == Phase::kRunning) {
    begin_failure(lost, now);
  }
  finish_if_all_ended();
}

// One dead rank costs one slot.
void JobLife::lose_rank(const RankEnd& end, Time now) {
  --ranks_left_;
  if (!first_lost_) first_lost_ = Failure{Failure::Kind::kRank, end, 0, {}, now};
  // Its peers notice the death of a rank sooner than the kernel has torn it down.
  const bool explains = end.signal != 0 && first_lost_->kind == Failure::Kind::kRank && first_lost_->rank.signal == 0 &&
                        now - first_lost_->at <= kCauseWindow;
  if (explains) first_lost_->rank = end;
  if (ranks_left_ >= options_.least_ranks || (ranks_left_ == 0 && somebody_ended_well_)) {
    if (ranks_left_ == 0) return begin_ending(now, false);
    actions_.push_back({Kind::kSay, 0,
                        text("rank ", end.rank, " on ", options_.hosts[host_of(end.rank)], " is lost (",
                             end.signal != 0 ? "signal " : "exit code ", end.signal != 0 ? end.signal : end.code,
                             "); the job goes on with ", ranks_left_, ranks_left_ == 1 ? " rank" : " ranks")});
    return;
  }
  if (somebody_ended_well_) return;  // They come to their end one after the other; what is left decides.
  actions_.push_back({Kind::kSay, 0,
                      text(ranks_left_, ranks_left_ == 1 ? " rank is" : " ranks are", " left, fewer than --min-np ",
                           options_.least_ranks)});
  begin_failure(*first_lost_, now);
}

size_t JobLife::host_of(int rank) const {
  size_t host = 0;
  for (int first = 0; host + 1 < options_.ranks_per_host.size(); ++host) {
    first += options_.ranks_per_host[host];
    if (rank < first) break;
  }
  return host;
}

void JobLife::host_ended(size_t host, Time now) {
  if (hosts_[host] == HostState::kLost) return;
  hosts_[host] = HostState::kEnded;
  if (phase_ == Phase::kStarting) {
    begin_failure({Failure::Kind::kHost, {}, 0, text("host ", options_.hosts[host], " ended before it began"), now},
                  now);
  }
  finish_if_all_ended();
}

void JobLife::rank_ended(const RankEnd& end, Time now) {
  if (!ended_.insert(end.rank).second) return;
  if (is_elastic() && phase_ == Phase::kRunning && end.failed() && end.error.empty()) return lose_rank(end, now);
  --ranks_left_;
  somebody_ended_well_ |= !end.failed();
  const bool by_itself = end.failed() && !end.asked;
  if (phase_ == Phase::kRunning || phase_ == Phase::kStarting) {
    if (end.failed()) {
      begin_failure({Failure::Kind::kRank, end, 0, {}, now}, now);
    } else if (ranks_left_ == 0) {
      begin_ending(now, false);
    }
    return;
  }
  if (!by_itself || !failure_ || failure_->kind != Failure::Kind::kRank) return;
  const bool explains = end.signal != 0 && failure_->rank.signal == 0 && now - failure_->at <= kCauseWindow;
  also_failed_.push_back(explains ? std::exchange(failure_->rank, end) : end);
}

void JobLife::signalled(int number, Time now) {
  if (phase_ == Phase::kDone) return;
  if (phase_ != Phase::kEnding) {
    begin_failure({Failure::Kind::kSignal, {}, number, {}, now}, now);
  } else if (number == kInterrupt) {
    begin_ending(now, true);
  }
}

void JobLife::fail(const std::string& why, Time now) {
  if (phase_ == Phase::kStarting || phase_ == Phase::kRunning) {
    begin_failure({Failure::Kind::kOther, {}, 0, why, now}, now);
  }
}

void JobLife::begin_failure(Failure failure, Time now) {
  failure_ = std::move(failure);
  begin_ending(now, false);
}

void JobLife::begin_ending(Time now, bool at_once) {
  phase_ = Phase::kEnding;
  end_by_ = Deadline(now + (at_once ? Duration::zero() : options_.grace) + kLastWords);
  for (size_t host = 0; host < hosts_.size(); ++host) {
    if (hosts_[host] == HostState::kReady) actions_.push_back({at_once ? Kind::kEndNow : Kind::kEnd, host});
    // Nothing runs there yet, and nobody there listens: letting go is all that can be done.
    if (hosts_[host] == HostState::kAwaited) hosts_[host] = HostState::kLost;
  }
  finish_if_all_ended();
}

bool JobLife::all_hosts_are_gone() const {
  return std::all_of(hosts_.begin(), hosts_.end(),
                     [](HostState s) { return s == HostState::kEnded || s == HostState::kLost; });
}

void JobLife::finish_if_all_ended() {
  if (!all_hosts_are_gone()) return;
  // Ranks whose end nobody told are not known to have ended well.
  if (!failure_ && ranks_left_ > 0) {
    failure_ = Failure{Failure::Kind::kOther, {}, 0, text("the end of ", ranks_left_, " ranks was not told"), {}};
  }
  phase_ = Phase::kDone;
}

void JobLife::tick(Time now) {
  if (phase_ == Phase::kStarting && now >= started_ + options_.start_timeout) {
    begin_failure({Failure::Kind::kOther,
                   {},
                   0,
                   text("no answer from ", names_of(HostState::kAwaited), " within ",
                        seconds_of(options_.start_timeout), " s; raise --start-timeout if the network is slow"),
                   now},
                  now);
    return;
  }
  if (phase_ == Phase::kStarting && now >= say_at_) {
    actions_.push_back({Kind::kSay, 0,
                        text("still waiting for ", names_of(HostState::kAwaited), " after ",
                             static_cast<int>(seconds_of(now - started_)), " s")});
    say_at_ = now + kPatience;
  }
  if (phase_ == Phase::kEnding && end_by_.expired(now)) {
    actions_.push_back({Kind::kAbandon, 0, text(names_of(HostState::kReady), " did not end in time")});
    if (!failure_) failure_ = Failure{Failure::Kind::kOther, {}, 0, actions_.back().words, now};
    phase_ = Phase::kDone;
  }
}

std::vector<JobLife::Action> JobLife::take_actions() { return std::exchange(actions_, {}); }

Deadline JobLife::deadline() const {
  if (phase_ == Phase::kStarting) return Deadline(std::min(say_at_, started_ + options_.start_timeout));
  return phase_ == Phase::kEnding ? end_by_ : Deadline::never();
}

int JobLife::exit_code() const {
  if (!failure_) return 0;
  if (failure_->kind == Failure::Kind::kRank) return failure_->rank.exit_code();
  return failure_->kind == Failure::Kind::kSignal ? kSignalBase + failure_->signal : kFailed;
}

std::string JobLife::names_of(HostState state) const {
  std::string names;
  int count = 0;
  for (size_t host = 0; host < hosts_.size(); ++host) {
    if (hosts_[host] != state) continue;
    names += text(names.empty() ? "" : ", ", options_.hosts[host]);
    ++count;
  }
  return text(count == 1 ? "host " : "hosts ", names);
}

}  // namespace horo::cli::launch
