#include "horo/rendezvous/suspicion.h"

#include <algorithm>
#include <utility>

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

void Suspicion::on(const watch::Tick&, Time now) {
  if (!due_ || now < *due_) return;
  if (now - *due_ > options_.pause_intervals * options_.interval) start_anew(now);
  std::vector<int> evicted;
  for (auto& [rank, peer] : peers_) {
    look_at(rank, peer, now);
    if (peer.asked && now - *peer.asked >= options_.freeze_timeout) {
      out_.push_back(watch::Evict{rank, now - *peer.asked});
      evicted.push_back(rank);
    }
  }
  for (int rank : evicted) peers_.erase(rank);
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

void Suspicion::start_anew(Time now) {
  // Answers may lie unread in our own queues: everyone gets the full time again, counted from a new question.
  for (auto& [rank, peer] : peers_) {
    peer.asked.reset();
    peer.ask_at = now;
  }
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
