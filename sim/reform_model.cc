#include "sim/reform_model.h"

#include <algorithm>

#include "horo/rendezvous/quorum.h"

namespace horo::sim {

uint64_t view_of(const std::vector<int>& members) {
  uint64_t view = 0;
  for (int rank : members) view |= uint64_t{1} << rank;
  return view;
}

std::vector<int> members_of(uint64_t view) {
  std::vector<int> members;
  for (int rank = 0; view >> rank != 0; ++rank) {
    if ((view >> rank & 1) != 0) members.push_back(rank);
  }
  return members;
}

void ReformModel::look(const rendezvous::Membership& membership) {
  if (!reforming_ || attempt_ == Attempt::kOpen) return;
  const std::vector<int> members = membership.members();
  // Engine::members() waits until the survivors have agreed about the losses that this rank knows of.
  if (membership.lost().intersects(members)) return;
  const uint64_t view = view_of(members);
  if (attempt_ != Attempt::kNone && view == view_) return;  // Runtime::reform waits for members that differ.
  if (Status status = quorum(members, membership.lost()); !status.ok()) return host_.stop(status);
  view_ = view;
  attempt_ = Attempt::kJoined;
  const Join join{view};
  members.front() == rank_ ? take(rank_, join) : host_.send(members.front(), join);
}

Status ReformModel::quorum(const std::vector<int>& members, const rendezvous::LostSet& lost) const {
  std::vector<int> before = members_of(world_);
  std::vector<rendezvous::Loss> losses = lost.losses();
  if (bug_ == Bug::kNoQuorum) return {};
  if (bug_ == Bug::kHalfIsEnough && 2 * members.size() >= before.size()) return {};
  if (bug_ == Bug::kQuorumOfTheLiving) {
    std::erase_if(before, [&](int rank) { return lost.reason(rank) && !is_eviction(*lost.reason(rank)); });
  }
  if (bug_ == Bug::kSilentAreDead) {
    for (rendezvous::Loss& loss : losses) loss.reason = rendezvous::LossReason::kKilled;
  }
  return rendezvous::check_quorum(before, members, losses);
}

void ReformModel::take(int from, const Join& join) {
  std::set<int>& here = joins_[join.view];
  here.insert(from);
  const std::vector<int> members = members_of(join.view);
  if (here.size() < members.size()) return;
  for (int rank : members) {
    if (rank != rank_) host_.send(rank, Ready{join.view});
  }
  take(Ready{join.view});
}

void ReformModel::take(const Ready& ready) {
  // A rank that has gone on to the next view refuses; that view lacks a member of this one, so nobody gets it.
  if (attempt_ != Attempt::kJoined || ready.view != view_) return;
  attempt_ = Attempt::kOpen;
  host_.open_world(view_);
}

void ReformModel::decided(uint64_t view, bool succeeded) {
  if (attempt_ != Attempt::kOpen || view != view_) return;
  attempt_ = succeeded ? Attempt::kNone : Attempt::kFailed;
  if (!succeeded) return;
  world_ = view;
  reforming_ = false;
}

void ReformModel::add_waits(RankBits& ranks) const {
  if (reforming_ && attempt_ == Attempt::kJoined) ranks |= static_cast<RankBits>(view_) & ~bit(rank_);
}

}  // namespace horo::sim
