#include "sim/group_model.h"

#include <algorithm>

#include "sim/random.h"

#include "horo/base/text.h"

namespace horo::sim {

void GroupModel::Ring::fill(uint64_t number, uint64_t value) {
  for (auto& slot : slots) {
    if (slot.first == number) slot.second = value;
  }
}

std::optional<uint64_t> GroupModel::Ring::find(uint64_t number) const {
  for (const auto& slot : slots) {
    if (slot.first == number) return slot.second;
  }
  return std::nullopt;
}

GroupModel::GroupModel(Identity identity, GroupHost& host) : identity_(std::move(identity)), host_(host) {
  for (int rank : identity_.members) {
    expected_ += uint64_t{1} << (4 * rank);
  }
  symmetric_.slots.resize(identity_.bug == Bug::kSymmetricRetention ? 1 : 2);
  rooted_.slots.resize(identity_.bug == Bug::kRootedRetention ? 2 : kWindow);
}

OpKind GroupModel::kind(uint64_t number) const {
  if (number == 1) return OpKind::kSymmetric;  // Nothing completes before the group is opened on every member.
  uint64_t draw = mix(mix(identity_.seed, identity_.id), number / 3) % 100;
  return draw < 45 ? OpKind::kSymmetric : draw < 80 ? OpKind::kRooted : OpKind::kExchange;
}

int GroupModel::root(uint64_t number) const {
  uint64_t draw = mix(mix(identity_.seed, identity_.id), number / 6 + 1000);
  return identity_.members[draw % identity_.members.size()];
}

void GroupModel::enter() {
  if (revoked_ || stopped_ || entered_ != completed_) return;
  ++entered_;
  if (kind(entered_) != OpKind::kRooted) {
    symmetric_.claim(entered_);
    uint64_t share = uint64_t{1} << (4 * identity_.rank);
    data_[entered_][identity_.rank] = share;
    send_to_others(Data{identity_.id, entered_, share});
  }
  advance();
}

bool GroupModel::window_open(uint64_t number) const {
  uint64_t window = identity_.bug == Bug::kWideWindow ? 2 * kWindow : kWindow;
  return std::all_of(identity_.members.begin(), identity_.members.end(), [&](int rank) {
    return rank == identity_.rank || progress_[static_cast<size_t>(rank)] + window >= number;
  });
}

void GroupModel::advance() {
  if (stopped_ || held_ >= entered_) return;
  uint64_t number = entered_;
  if (kind(number) == OpKind::kRooted && root(number) == identity_.rank) {
    if (!window_open(number)) return;
    send_to_others(Data{identity_.id, number, expected_});
    hold(number, expected_);
    return;
  }
  auto arrived = data_.find(number);
  if (arrived == data_.end()) return;
  size_t needed = kind(number) == OpKind::kRooted ? 1 : identity_.members.size();
  if (arrived->second.size() < needed) return;
  uint64_t sum = 0;
  for (const auto& [rank, value] : arrived->second) sum += value;
  hold(number, sum);
}

void GroupModel::hold(uint64_t number, uint64_t value) {
  held_ = number;
  values_[number] = value;
  data_.erase(number);
  if (kind(number) == OpKind::kRooted) {
    rooted_.claim(number);
    rooted_.fill(number, value);
  } else {
    symmetric_.fill(number, value);
  }
  if (kind(number) == OpKind::kExchange && identity_.bug != Bug::kNoConfirm) {
    send_to_others(Confirm{identity_.id, number});
    confirms_[number].insert(identity_.rank);
    complete_if_confirmed(number);
  } else {
    host_.finish_soon(identity_.id, number);
  }
}

void GroupModel::complete_if_confirmed(uint64_t number) {
  if (stopped_ || held_ < number || completed_ >= number) return;
  if (confirms_[number].size() == identity_.members.size()) complete(number);
}

void GroupModel::finish(uint64_t number) {
  if (!stopped_ && completed_ + 1 == number && held_ >= number) complete(number);
}

void GroupModel::complete(uint64_t number) {
  if (values_[number] != expected_) {
    host_.violated(text("success of operation ", number, " of group ", identity_.id, " with the sum ", std::hex,
                        values_[number], " instead of ", expected_));
  }
  completed_ = number;
  values_.erase(number);
  confirms_.erase(number);
  if (kind(number) == OpKind::kRooted) send_to_others(Ack{identity_.id, number});
  host_.succeeded(identity_.id, number);
  if (!stopped_) host_.enter_soon(identity_.id);
}

void GroupModel::note_progress(int rank, uint64_t number) {
  uint64_t& known = progress_[static_cast<size_t>(rank)];
  known = std::max(known, number);
}

void GroupModel::take(int from, const Data& data) {
  if (stopped_ || data.number <= held_) return;
  data_[data.number][from] = data.value;
  if (kind(data.number) != OpKind::kRooted) note_progress(from, data.number - 1);
  advance();
}

void GroupModel::take(int from, const Confirm& confirm) {
  if (stopped_ || confirm.number <= completed_) return;
  confirms_[confirm.number].insert(from);
  complete_if_confirmed(confirm.number);
}

void GroupModel::take(int from, const Ack& ack) {
  note_progress(from, ack.number);
  advance();
}

void GroupModel::take(int, const Serve& serve) {
  if (!stopped_) return;
  served_[serve.number] = serve.value;
  for (auto next = served_.find(held_ + 1); next != served_.end(); next = served_.find(held_ + 1)) {
    ++held_;
    values_[held_] = next->second;
  }
  follow_decision();
}

void GroupModel::stop() {
  if (stopped_) return;
  auto arrived = data_.find(entered_);
  if (identity_.bug == Bug::kShrunkSuccess && held_ < entered_ && arrived != data_.end()) {
    uint64_t sum = 0;
    for (const auto& [rank, value] : arrived->second) sum += value;
    values_[entered_] = sum;
    held_ = entered_;
    complete(entered_);
  }
  stopped_ = true;
  if (identity_.bug == Bug::kFailAlone) host_.failed(identity_.id, completed_ + 1);
}

void GroupModel::decide(const rendezvous::output::Decide& decide) {
  revoked_ = stopped_ = true;
  if (decide.final < completed_) {
    host_.violated(
        text("group ", identity_.id, " decided to end at operation ", decide.final, " after completing ", completed_));
  }
  decision_ = decide;
  host_.failed(identity_.id, decide.final + 1);
  follow_decision();
}

void GroupModel::follow_decision() {
  if (!decision_) return;
  while (completed_ < std::min(held_, decision_->final)) complete(completed_ + 1);
  if (completed_ < decision_->final || settled_epoch_ == decision_->epoch) return;
  settled_epoch_ = decision_->epoch;
  host_.settled(identity_.id, decision_->epoch);
}

void GroupModel::release() {
  symmetric_.slots.assign(symmetric_.slots.size(), {});
  rooted_.slots.assign(rooted_.slots.size(), {});
  served_.clear();
}

std::optional<uint64_t> GroupModel::retained(uint64_t number) const {
  if (auto served = served_.find(number); served != served_.end()) return served->second;
  return kind(number) == OpKind::kRooted ? rooted_.find(number) : symmetric_.find(number);
}

void GroupModel::add_waits(RankBits& ranks) const {
  if (decision_ && decision_->await && held_ < decision_->final) ranks |= bit(decision_->await->peer);
  if (stopped_ || entered_ == completed_) return;
  bool rooted = kind(entered_) == OpKind::kRooted;
  if (rooted && root(entered_) != identity_.rank) {
    if (held_ < entered_) ranks |= bit(root(entered_));
    return;
  }
  auto arrived = data_.find(entered_);
  auto confirmed = confirms_.find(entered_);
  for (int rank : identity_.members) {
    if (rank == identity_.rank) continue;
    if (held_ >= entered_) {
      if (confirmed != confirms_.end() && !confirmed->second.contains(rank)) ranks |= bit(rank);
    } else if (rooted) {
      if (progress_[static_cast<size_t>(rank)] + kWindow < entered_) ranks |= bit(rank);
    } else if (arrived == data_.end() || !arrived->second.contains(rank)) {
      ranks |= bit(rank);
    }
  }
}

void GroupModel::send_to_others(const Packet& packet) {
  for (int rank : identity_.members) {
    if (rank != identity_.rank) host_.send(rank, packet);
  }
}

}  // namespace horo::sim
