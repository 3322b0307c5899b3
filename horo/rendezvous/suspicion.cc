#include "horo/rendezvous/suspicion.h"

#include <algorithm>
#include <utility>

#include "horo/rendezvous/quorum.h"

namespace horo::rendezvous {

std::vector<watch::Output> Suspicion::step(const watch::Input& input, Time now) {
  out_.clear();
  std::visit([&](const auto& value) { on(value, now); }, input);
  return std::exchange(out_, {});
}

void Suspicion::on(const watch::WaitingOn& waiting, Time now) {
  std::map<int, Peer> kept;
  for (int rank : waiting.ranks) {
    auto known = peers_.find(rank);
    kept[rank] = known != peers_.end() ? known->second : Peer{waiting.since + options_.patience, std::nullopt, false};
  }
  peers_ = std::move(kept);
  if (peers_.empty()) {
    due_.reset();
    voters_.clear();
  } else if (!due_) {
    plan(now);
  }
}

void Suspicion::on(const watch::Answered& answered, Time now) {
  auto known = peers_.find(answered.rank);
  if (known == peers_.end()) return;
  if (known->second.named) out_.push_back(watch::Recover{answered.rank});
  known->second = Peer{now + options_.interval, std::nullopt, false};
}

void Suspicion::on(const watch::Job& job, Time) {
  job_ = job;
  voters_.clear();
}

void Suspicion::on(const watch::Gone& gone, Time) {
  losses_ = gone.losses;
  std::erase_if(voters_, [&](const auto& voter) { return is_gone(voter.first); });
}

void Suspicion::on(const watch::Asked& asked, Time now) {
  const auto known = condemned_.find(asked.rank);
  const bool is_condemned = known != condemned_.end() && now - known->second <= 2 * lead();
  const bool agrees = !is_condemned && !is_gone(asked.rank);
  if (agrees) {
    for (int rank : asked.silent) condemned_[rank] = now;
  }
  out_.push_back(watch::Consent{asked.rank, agrees});
}

void Suspicion::on(const watch::Consented& consented, Time now) {
  auto voter = voters_.find(consented.rank);
  if (voter == voters_.end() || !voter->second.asked) return;
  voter->second.answered = std::exchange(voter->second.asked, std::nullopt);
  voter->second.agrees = consented.agrees;
  judge(now);
}

void Suspicion::on(const watch::Tick&, Time now) {
  if (!due_ || now < *due_) return;
  if (now - *due_ > options_.pause_intervals * options_.interval) start_anew(now);
  for (auto& [rank, peer] : peers_) look_at(rank, peer, now);
  ask_for_consent(now);
  judge(now);
  plan(now);
}

void Suspicion::look_at(int rank, Peer& peer, Time now) {
  if (!peer.asked) {
    if (now < peer.ask_at) return;
    peer.asked = now;
    out_.push_back(watch::Probe{rank});
    return;
  }
  if (!peer.named && now - *peer.asked >= options_.name_after) {
    peer.named = true;
    out_.push_back(watch::Name{rank, now - *peer.asked});
  }
}

Duration Suspicion::lead() const { return std::min(3 * options_.interval, options_.freeze_timeout / 2); }

std::vector<int> Suspicion::silent_for(Duration limit, Time now) const {
  std::vector<int> ranks;
  for (const auto& [rank, peer] : peers_) {
    if (peer.asked && now - *peer.asked >= limit) ranks.push_back(rank);
  }
  return ranks;
}

bool Suspicion::is_gone(int rank) const {
  return std::any_of(losses_.begin(), losses_.end(), [&](const Loss& loss) { return loss.rank == rank; });
}

bool Suspicion::is_quorum(std::vector<int> members) const {
  members.push_back(job_.self);
  std::sort(members.begin(), members.end());
  return check_quorum(job_.ranks, members, losses_).ok();
}

void Suspicion::ask_for_consent(Time now) {
  const std::vector<int> silent = silent_for(options_.freeze_timeout - lead(), now);
  if (job_.ranks.empty() || silent.empty()) {
    voters_.clear();
    ask_again_.reset();
    return;
  }
  for (int rank : silent) voters_.erase(rank);
  if (ask_again_ && now < *ask_again_) return;
  ask_again_ = now + options_.interval;
  for (int rank : job_.ranks) {
    if (rank == job_.self || is_gone(rank) || std::binary_search(silent.begin(), silent.end(), rank)) continue;
    Voter& voter = voters_[rank];
    if (voter.asked) continue;
    voter.asked = now;
    out_.push_back(watch::AskConsent{rank, silent});
  }
}

void Suspicion::judge(Time now) {
  const std::vector<int> overdue = silent_for(options_.freeze_timeout, now);
  if (overdue.empty()) return;
  if (job_.ranks.empty()) return evict(overdue, true, now);
  std::vector<int> agree, heard, unheard;
  bool may_answer = false;
  for (int rank : job_.ranks) {
    if (rank == job_.self || is_gone(rank)) continue;
    const auto voter = voters_.find(rank);
    const bool is_fresh = voter != voters_.end() && voter->second.answered && now - *voter->second.answered <= lead();
    if (is_fresh && voter->second.agrees) agree.push_back(rank);
    (is_fresh ? heard : unheard).push_back(rank);
    may_answer |= !is_fresh && now - asked_since(rank).value_or(now) < options_.freeze_timeout;
  }
  if (is_quorum(agree)) return evict(overdue, true, now);
  // Whoever was refused is about to be evicted itself, or will be agreed with later.
  if (may_answer || is_quorum(heard)) return;
  evict(unheard, false, now);
}

std::optional<Time> Suspicion::asked_since(int rank) const {
  if (const auto peer = peers_.find(rank); peer != peers_.end() && peer->second.asked) return peer->second.asked;
  const auto voter = voters_.find(rank);
  return voter == voters_.end() ? std::nullopt : voter->second.asked;
}

void Suspicion::evict(const std::vector<int>& ranks, bool has_quorum, Time now) {
  Duration longest{};
  for (int rank : ranks) {
    auto known = peers_.find(rank);
    if (known != peers_.end() && known->second.asked) longest = std::max(longest, now - *known->second.asked);
    peers_.erase(rank);
    voters_.erase(rank);
  }
  out_.push_back(watch::Evict{ranks, longest, has_quorum});
}

void Suspicion::start_anew(Time now) {
  // Answers may lie unread in our own queues: everyone gets the full time again, counted from a new question.
  for (auto& [rank, peer] : peers_) {
    peer.asked.reset();
    peer.ask_at = now;
  }
  voters_.clear();
}

void Suspicion::plan(Time now) {
  if (peers_.empty()) {
    due_.reset();
    return;
  }
  // At least one tick per interval, for the observer's own pauses show only between ticks.
  Time next = now + options_.interval;
  for (const auto& [rank, peer] : peers_) {
    if (!peer.asked) next = std::min(next, std::max(peer.ask_at, now));
  }
  due_ = next;
}

}  // namespace horo::rendezvous
