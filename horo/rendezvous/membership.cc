#include "horo/rendezvous/membership.h"

#include <algorithm>
#include <utility>

#include "horo/base/check.h"
#include "horo/rendezvous/quorum.h"

namespace horo::rendezvous {

namespace {

const Report* find_report(const std::vector<Report>& reports, uint64_t group) {
  for (const Report& report : reports) {
    if (report.group == group) return &report;
  }
  return nullptr;
}

}  // namespace

Membership::Membership(const Options& options) : options_(options) {
  HORO_CHECK(options.size > 0 && options.rank >= 0 && options.rank < options.size, "the rank lies within the size");
}

std::vector<Output> Membership::step(const Input& input, Time now) {
  out_.clear();
  if (!ended_) {
    std::visit([&](const auto& value) { on(value, now); }, input);
  }
  return std::exchange(out_, {});
}

std::optional<Time> Membership::next_tick() const {
  if (ended_ || phase_ != Phase::kFlushed) return std::nullopt;
  return limit_.next_look();
}

std::vector<int> Membership::waiting_for() const {
  std::vector<int> missing;
  if (ended_ || phase_ == Phase::kInstalled || phase_ == Phase::kReporting) return missing;
  for (int rank : survivors(lost_)) {
    if (rank == options_.rank) continue;
    auto word = words_.find(rank);
    bool said =
        word != words_.end() && (phase_ == Phase::kFlushed ? word->second.reports.has_value() : word->second.stable);
    if (!said) missing.push_back(rank);
  }
  return missing;
}

void Membership::on(const input::Opened& opened, Time) {
  if (!lost_.intersects(opened.members)) {
    groups_.emplace(opened.group, opened.members);
    return;
  }
  // No member can have completed anything in it: its first operation needs all of them.
  out_.push_back(output::Decide{target_epoch(), opened.group, 0, lost_, {}, std::nullopt});
}

void Membership::on(const input::Closed& closed, Time now) {
  groups_.erase(closed.group);
  unreported_.erase(closed.group);
  reports_.erase(closed.group);
  unsettled_.erase(closed.group);
  if (phase_ == Phase::kReporting) flush_when_reported(now);
  if (phase_ == Phase::kDecided) stable_when_settled();
}

void Membership::on(const input::Lost& lost, Time now) {
  LostSet more;
  more.add(lost.loss);
  grow(more, options_.rank, now);
}

void Membership::on(const input::Silent& silent, Time now) {
  LostSet more;
  for (int rank : silent.ranks) more.add({rank, LossReason::kFrozen});
  grow(more, options_.rank, now);
}

void Membership::on(const input::Job& job, Time) { job_ = job.ranks; }

bool Membership::may_go_on_without(const LostSet& lost) const {
  return job_.empty() || check_quorum(job_, survivors(lost), lost.losses()).ok();
}

void Membership::on(const input::Received& received, Time now) {
  const Message& message = received.message;
  if (message.base_epoch != options_.base_epoch || received.from == options_.rank) return;
  if (auto reason = lost_.reason(received.from)) {
    // Its own word does not count any more. It may have missed that it was evicted.
    if (is_eviction(*reason)) {
      out_.push_back(output::Send{{received.from}, Message{MessageKind::kRevoke, options_.base_epoch, lost_, {}}});
    }
    return;
  }
  if (!may_go_on_without(message.lost)) {
    LostSet sender;
    sender.add({received.from, LossReason::kLink});
    return grow(sender, options_.rank, now);
  }
  grow(message.lost, received.from, now);
  if (ended_ || lost_.contains(received.from) || !message.lost.same_ranks(lost_)) return;
  Word& word = words_[received.from];
  if (message.kind == MessageKind::kFlush) {
    word.reports = message.reports;
    decide_when_flushed();
  } else if (message.kind == MessageKind::kStable) {
    word.stable = true;
    release_when_stable();
  }
}

void Membership::on(const input::Reported& reported, Time now) {
  if (phase_ != Phase::kReporting || reported.epoch != target_epoch()) return;
  if (unreported_.erase(reported.report.group) == 0) return;
  HORO_CHECK(reported.report.held >= reported.report.completed, "a group holds what it completed");
  reports_[reported.report.group] = reported.report;
  flush_when_reported(now);
}

void Membership::on(const input::Settled& settled, Time) {
  if (phase_ != Phase::kDecided || settled.epoch != target_epoch()) return;
  if (unsettled_.erase(settled.group) == 1) stable_when_settled();
}

void Membership::on(const input::Leave&, Time) {
  LostSet farewell = lost_;
  farewell.add({options_.rank, LossReason::kLeft});
  std::vector<int> others = survivors(farewell);
  if (!others.empty()) {
    out_.push_back(output::Send{std::move(others), Message{MessageKind::kRevoke, options_.base_epoch, farewell, {}}});
  }
  ended_ = true;
}

void Membership::on(const input::Tick&, Time now) {
  if (!next_tick() || !limit_.expired(now)) return;
  LostSet late;
  for (int rank : waiting_for()) late.add({rank, LossReason::kFrozen});
  grow(late, options_.rank, now);
}

void Membership::grow(const LostSet& more, int by, Time now) {
  if (auto reason = more.reason(options_.rank)) {
    // Whoever evicted this rank may have died before telling anyone else: the news is passed on like any other.
    lost_.merge(more);
    send_to_survivors(MessageKind::kRevoke, {});
    out_.push_back(output::Fence{by, *reason});
    ended_ = true;
    return;
  }
  LostSet before = lost_;
  if (lost_.merge(more)) begin_round(before, now);
}

void Membership::begin_round(const LostSet& before, Time now) {
  phase_ = Phase::kReporting;
  words_.clear();
  reports_.clear();
  unsettled_.clear();
  unreported_.clear();

  std::vector<int> told = survivors(lost_);
  std::erase(told, options_.rank);
  for (const Loss& loss : lost_.losses()) {
    if (is_eviction(loss.reason) && !before.contains(loss.rank)) told.push_back(loss.rank);
  }
  if (!told.empty()) {
    out_.push_back(output::Send{std::move(told), Message{MessageKind::kRevoke, options_.base_epoch, lost_, {}}});
  }

  output::Revoke revoke{target_epoch(), {}, lost_};
  for (const auto& [group, members] : groups_) {
    if (!lost_.intersects(members)) continue;
    unreported_.insert(group);
    revoke.groups.push_back(group);
  }
  if (!revoke.groups.empty()) out_.push_back(std::move(revoke));
  flush_when_reported(now);
}

void Membership::flush_when_reported(Time now) {
  if (!unreported_.empty()) return;
  phase_ = Phase::kFlushed;
  limit_ = AwakeLimit(options_.flush_timeout, now);
  std::vector<Report> reports;
  reports.reserve(reports_.size());
  for (const auto& [group, report] : reports_) reports.push_back(report);
  words_[options_.rank].reports = reports;
  send_to_survivors(MessageKind::kFlush, std::move(reports));
  decide_when_flushed();
}

void Membership::decide_when_flushed() {
  if (phase_ != Phase::kFlushed || !waiting_for().empty()) return;
  phase_ = Phase::kDecided;
  for (const auto& [group, report] : reports_) {
    out_.push_back(decision(group, groups_.at(group)));
    unsettled_.insert(group);
  }
  installed_ = lost_;
  out_.push_back(output::Install{target_epoch(), survivors(lost_), lost_});
  stable_when_settled();
}

output::Decide Membership::decision(uint64_t group, const std::vector<int>& members) const {
  output::Decide decide{target_epoch(), group, 0, lost_, {}, std::nullopt};
  std::map<int, Report> known;
  for (int rank : members) {
    auto word = words_.find(rank);
    if (word == words_.end() || lost_.contains(rank)) continue;
    const Report* report = find_report(*word->second.reports, group);
    if (report == nullptr) continue;  // Not opened there, or released: then it lacks nothing.
    known[rank] = *report;
    decide.final = std::max(decide.final, report->completed);
  }
  auto server =
      std::find_if(known.begin(), known.end(), [&](const auto& entry) { return entry.second.held >= decide.final; });
  HORO_CHECK(server != known.end(), "whoever has completed an operation holds it");
  for (const auto& [rank, report] : known) {
    if (report.held >= decide.final) continue;
    if (rank == options_.rank) decide.await = Transfer{server->first, report.held + 1, decide.final};
    if (server->first == options_.rank) decide.serve.push_back({rank, report.held + 1, decide.final});
  }
  return decide;
}

void Membership::stable_when_settled() {
  if (!unsettled_.empty() || words_[options_.rank].stable) return;
  words_[options_.rank].stable = true;
  send_to_survivors(MessageKind::kStable, {});
  release_when_stable();
}

void Membership::release_when_stable() {
  if (phase_ != Phase::kDecided || !words_[options_.rank].stable || !waiting_for().empty()) return;
  phase_ = Phase::kInstalled;
  output::Release release{target_epoch(), {}};
  for (const auto& [group, report] : reports_) {
    release.groups.push_back(group);
    groups_.erase(group);
  }
  if (!release.groups.empty()) out_.push_back(std::move(release));
}

void Membership::send_to_survivors(MessageKind kind, std::vector<Report> reports) {
  std::vector<int> others = survivors(lost_);
  std::erase(others, options_.rank);
  if (others.empty()) return;
  out_.push_back(output::Send{std::move(others), Message{kind, options_.base_epoch, lost_, std::move(reports)}});
}

std::vector<int> Membership::survivors(const LostSet& lost) const {
  std::vector<int> ranks;
  ranks.reserve(static_cast<size_t>(options_.size));
  for (int rank = 0; rank < options_.size; ++rank) {
    if (!lost.contains(rank)) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace horo::rendezvous
