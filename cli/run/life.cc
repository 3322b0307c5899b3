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
  for (size_t host = 0; host < options_.ranks_per_host.size(); ++host) {
    for (int i = 0; i < options_.ranks_per_host[host]; ++i) seats_[ranks_left_++] = Seat{host};
  }
}

size_t JobLife::add_host(const std::string& name) {
  options_.hosts.push_back(name);
  hosts_.push_back(HostState::kComing);
  return hosts_.size() - 1;
}

void JobLife::add_rank(int rank, size_t host) { seats_[rank] = Seat{.host = host, .admitted = false}; }

void JobLife::rank_admitted(int rank, bool admitted, Time now) {
  const auto seat = seats_.find(rank);
  if (seat == seats_.end() || seat->second.ended || phase_ != Phase::kRunning) return;
  if (std::exchange(seat->second.admitted, admitted) == admitted) return;
  ranks_left_ += admitted ? 1 : -1;
  judge(now);
}

void JobLife::rank_is_leaving(int rank) {
  if (const auto seat = seats_.find(rank); seat != seats_.end()) seat->second.leaving = true;
}

void JobLife::others_may_come(bool may, Time now) {
  if (std::exchange(others_may_come_, may) && !may && !wait_until_.is_never()) judge(now);
}

void JobLife::looked(Time now) {
  if (!std::exchange(looking_, false) || phase_ != Phase::kRunning || ranks_left_ > 0) return;
  judge_the_end(now);
}

std::optional<size_t> JobLife::host_of(int rank) const {
  const auto seat = seats_.find(rank);
  if (seat == seats_.end()) return {};
  return seat->second.host;
}

std::vector<int> JobLife::ranks_of(size_t host) const {
  std::vector<int> list;
  for (const auto& [rank, seat] : seats_) {
    if (seat.host == host) list.push_back(rank);
  }
  return list;
}

bool JobLife::has_ended(int rank) const {
  const auto seat = seats_.find(rank);
  return seat == seats_.end() || seat->second.ended;
}

bool JobLife::has_newcomers() const {
  return std::any_of(seats_.begin(), seats_.end(),
                     [](const auto& seat) { return !seat.second.admitted && !seat.second.ended; });
}

void JobLife::host_ready(size_t host, Time) {
  if (hosts_[host] != HostState::kAwaited && hosts_[host] != HostState::kComing) return;
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
  const bool was_coming = std::exchange(hosts_[host], HostState::kLost) == HostState::kComing;
  const Failure lost{Failure::Kind::kHost, {}, 0, text("host ", options_.hosts[host], ": ", why), now};
  if (phase_ == Phase::kRunning && is_elastic()) {
    if (was_coming) return;
    const std::vector<int> ranks = ranks_of(host);
    const bool had_ranks = std::any_of(ranks.begin(), ranks.end(), [&](int rank) { return !has_ended(rank); });
    say(text(lost.words, had_ranks ? "; its ranks count as lost" : ""));
    if (had_ranks && !first_lost_) first_lost_ = lost;
    for (int rank : ranks) {
      if (phase_ == Phase::kRunning) rank_ended({rank, kFailed, 0, false, {}}, now);
    }
  } else if (phase_ == Phase::kStarting || phase_ == Phase::kRunning) {
    begin_failure(lost, now);
  }
  finish_if_all_ended();
}

void JobLife::note_lost(const RankEnd& end, Time now) {
  if (!first_lost_) first_lost_ = Failure{Failure::Kind::kRank, end, 0, {}, now};
  // Its peers notice the death of a rank sooner than the kernel has torn it down.
  const bool explains = end.signal != 0 && first_lost_->kind == Failure::Kind::kRank && first_lost_->rank.signal == 0 &&
                        now - first_lost_->at <= kCauseWindow;
  if (explains) first_lost_->rank = end;
}

// One dead rank costs one slot.
void JobLife::lose_rank(const RankEnd& end, Time now) {
  --ranks_left_;
  last_ended_well_ = false;
  note_lost(end, now);
  if (ranks_left_ >= options_.least_ranks || (ranks_left_ > 0 && others_may_come_)) {
    say(text("rank ", end.rank, " on ", options_.hosts[*host_of(end.rank)], " is lost (",
             end.signal != 0 ? "signal " : "exit code ", end.signal != 0 ? end.signal : end.code,
             "); the job goes on with ", ranks_left_, ranks_left_ == 1 ? " rank" : " ranks"));
  }
  judge(now);
}

/// It was asked to.
void JobLife::rank_left(const RankEnd& end, Time now) {
  --ranks_left_;
  last_ended_well_ = !end.failed();
  say(text("rank ", end.rank, " on ", options_.hosts[*host_of(end.rank)], " has left; the job goes on with ",
           ranks_left_, ranks_left_ == 1 ? " rank" : " ranks"));
  judge(now);
}

std::string JobLife::too_few() const {
  return text(ranks_left_, ranks_left_ == 1 ? " rank is" : " ranks are", " left, fewer than --min-np ",
              options_.least_ranks);
}

/// An elastic job, after its ranks have become more or fewer.
void JobLife::judge(Time now) {
  if (phase_ != Phase::kRunning) return;
  if (ranks_left_ == 0) {
    // One of those may have been admitted a moment ago.
    if (!has_newcomers()) return judge_the_end(now);
    if (!std::exchange(looking_, true)) actions_.push_back({Kind::kLook});
    return;
  }
  // They come to their end one after the other; what is left decides.
  if (ranks_left_ >= options_.least_ranks || somebody_ended_well_) {
    wait_until_ = Deadline::never();
  } else if (!others_may_come_) {
    give_up_waiting(too_few(), now);
  } else if (wait_until_.is_never()) {
    wait_until_ = Deadline(now + options_.elastic_timeout);
    say(text(too_few(), "; waiting up to ", seconds_of(options_.elastic_timeout), " s for others"));
  }
}

/// All ranks have ended, and newcomers cannot go on from nothing.
void JobLife::judge_the_end(Time now) {
  if (somebody_ended_well_ || last_ended_well_) return begin_ending(now, false);
  give_up_waiting(too_few(), now);
}

void JobLife::give_up_waiting(const std::string& why, Time now) {
  say(why);
  begin_failure(first_lost_ ? *first_lost_ : Failure{Failure::Kind::kOther, {}, 0, why, now}, now);
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
  const auto place = seats_.find(end.rank);
  if (place == seats_.end() || std::exchange(place->second.ended, true)) return;
  const Seat& seat = place->second;
  if (!seat.admitted) {
    if (ranks_left_ == 0 && !looking_) judge(now);
    return;
  }
  const bool is_running = phase_ == Phase::kRunning;
  if (is_elastic() && is_running && seat.leaving) return rank_left(end, now);
  if (is_elastic() && is_running && end.failed() && end.error.empty()) return lose_rank(end, now);
  --ranks_left_;
  last_ended_well_ = !end.failed();
  somebody_ended_well_ |= !end.failed();
  if (is_running || phase_ == Phase::kStarting) {
    if (end.failed()) return begin_failure({Failure::Kind::kRank, end, 0, {}, now}, now);
    if (is_elastic()) return judge(now);
    if (ranks_left_ == 0) begin_ending(now, false);
    return;
  }
  if (!end.failed() || end.asked || !failure_ || failure_->kind != Failure::Kind::kRank) return;
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
    if (hosts_[host] == HostState::kAwaited || hosts_[host] == HostState::kComing) hosts_[host] = HostState::kLost;
  }
  finish_if_all_ended();
}

bool JobLife::all_hosts_are_gone() const {
  return std::all_of(hosts_.begin(), hosts_.end(),
                     [](HostState s) { return s == HostState::kEnded || s == HostState::kLost; });
}

void JobLife::finish_if_all_ended() {
  if (!all_hosts_are_gone() || phase_ == Phase::kDone) return;
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
  if (phase_ == Phase::kRunning && wait_until_.expired(now)) {
    wait_until_ = Deadline::never();
    give_up_waiting(text(too_few(), ", and no others have come within ", seconds_of(options_.elastic_timeout),
                         " s (--elastic-timeout)"),
                    now);
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
  if (phase_ == Phase::kRunning) return wait_until_;
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
