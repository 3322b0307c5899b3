// How the survivors of a loss go on as one job, in place (docs/elastic.md).
//
// Nothing here is decided by one rank. The membership (horo/rendezvous/membership.h) tells all survivors alike who is
// left. They make a group of these, and its first operation is the decision: it succeeds on all of them or on none,
// like every operation. Who finds that it failed waits for the next word of the membership and tries again with those
// that are left then.
#include <algorithm>

#include "horo/base/failpoint.h"
#include "horo/base/text.h"
#include "horo/engine/process_set.h"
#include "horo/engine/runtime.h"
#include "horo/rendezvous/quorum.h"

namespace horo::engine {

namespace {

/// For the membership to tell why an attempt failed, when the attempt itself does not: longer than it takes to evict
/// somebody who is frozen.
constexpr auto kReasonLimit = std::chrono::seconds(15);

bool is_within(const std::vector<int>& some, const std::vector<int>& all) {
  return std::includes(all.begin(), all.end(), some.begin(), some.end());
}

}  // namespace

std::shared_ptr<const Runtime::Seating> Runtime::seating() const {
  std::lock_guard lock(mutex_);
  return seating_;
}

int Runtime::rank() const { return seating()->rank; }
int Runtime::size() const { return static_cast<int>(seating()->seats.size()); }
Position Runtime::position() const { return seating()->position; }

Result<std::vector<int>> Runtime::seats_of(const std::vector<int>& ranks) const {
  const auto now = seating();
  std::vector<int> seats;
  for (int rank : ranks) {
    if (rank < 0 || static_cast<size_t>(rank) >= now->seats.size()) {
      return Status(Code::kInvalidArgument, text("there is no rank ", rank, "; the job has ", now->seats.size()));
    }
    seats.push_back(now->seats[static_cast<size_t>(rank)]);
  }
  return seats;
}

std::vector<int> Runtime::ranks_of(const std::vector<int>& seats) const {
  const auto now = seating();
  std::vector<int> ranks;
  for (int seat : seats) {
    const auto found = std::lower_bound(now->seats.begin(), now->seats.end(), seat);
    if (found != now->seats.end() && *found == seat) ranks.push_back(static_cast<int>(found - now->seats.begin()));
  }
  return ranks;
}

Result<std::shared_ptr<group::Group>> Runtime::create_group(const std::vector<int>& ranks) {
  HORO_ASSIGN(const std::vector<int> seats, seats_of(ranks));
  return engine_->create_group(seats);
}

Status Runtime::reform(Deadline deadline) {
  std::unique_lock only(reforming_, std::try_to_lock);
  if (!only.owns_lock()) return {Code::kInvalidArgument, "another thread of this rank reforms the job already"};
  HORO_ASSIGN(const std::shared_ptr<ProcessSet> old, find(0));
  old->close(old->group().over().value_or(Status(Code::kStopped, "the job is reformed")));
  engine_->bell().ring();  // A caller that drives finds its submission done, and leaves.
  // Perhaps nothing is wrong with the old world, but its members shall begin anew: all of them must hear of it. What
  // this rank has taken part in, they complete.
  if (!old->wait_idle(deadline)) return {Code::kTimeout, "an operation of the old job has not ended"};
  HORO_FAILPOINT("reform.begin");
  engine_->leave_group(old->group());
  HORO_FAILPOINT("reform.left");
  const std::vector<int> before = seating()->seats;
  while (true) {
    const std::vector<int> seats = engine_->members();
    HORO_FAILPOINT("reform.view");
    HORO_TRY(close_broken_sets(seats, deadline));
    HORO_FAILPOINT("reform.closed");
    HORO_TRY(rendezvous::check_quorum(before, seats, engine_->losses()));
    auto world = make_world(seats, deadline);
    if (world.ok()) {
      HORO_FAILPOINT("reform.decided");
      take_seats(seats, *world);
      return {};
    }
    const Status& why = world.status();
    engine_->log().info("cannot go on with ", ranks_text(seats), " yet: ", why);
    const bool lost = why.code() == Code::kPeerLost;
    const Deadline limit = lost ? deadline : deadline.earlier(Deadline::after(kReasonLimit));
    if (why.code() == Code::kEvicted || !engine_->members_differ_from(seats, limit)) return why;
  }
}

// The first operation of the new group, by which its members exchange where their letters go, is the decision.
Result<std::shared_ptr<ProcessSet>> Runtime::make_world(const std::vector<int>& seats, Deadline deadline) {
  HORO_ASSIGN(std::shared_ptr<group::Group> group, engine_->create_group(seats, deadline));
  HORO_FAILPOINT("reform.group");
  auto world = make_set(0, group, tuning(), false, deadline);
  if (!world.ok()) engine_->remove_group(group);
  return world;
}

// What is under way in them has to end first: as long as a rank has not come, others may need what it holds.
Status Runtime::close_broken_sets(const std::vector<int>& seats, Deadline deadline) {
  std::map<int, Known> sets;
  {
    std::lock_guard lock(mutex_);
    sets = sets_;
  }
  for (const auto& [number, known] : sets) {
    if (!known.set || (number != 0 && is_within(known.seats, seats))) continue;
    known.set->close(known.set->group().over().value_or(
        Status(Code::kPeerLost, text("process set ", number, " has lost a rank and is over"))));
    if (known.set->wait_idle(deadline)) continue;
    return {Code::kTimeout, text("an operation of process set ", number, " has not ended")};
  }
  return {};
}

void Runtime::take_seats(const std::vector<int>& seats, const std::shared_ptr<ProcessSet>& world) {
  auto next = std::make_shared<Seating>();
  next->seats = seats;
  next->rank = world->member();
  next->position = position_of(world->group().shape(), next->rank);
  std::vector<std::shared_ptr<ProcessSet>> over;
  engine_->call_ranks(seats);
  engine_->keep_quorum(seats);
  {
    std::lock_guard lock(mutex_);
    for (auto it = sets_.begin(); it != sets_.end();) {
      const bool stays = it->first != 0 && is_within(it->second.seats, seats);
      if (it->second.set) stays ? it->second.set->names_changed() : over.push_back(it->second.set);
      it = stays ? std::next(it) : sets_.erase(it);
    }
    world->names_changed();
    sets_[0] = {seats, world};
    seating_ = std::move(next);
  }
  HORO_FAILPOINT("reform.seated");
  engine_->bell().ring();
  const Status why(Code::kPeerLost, "the process set has lost a rank and is over");
  for (const std::shared_ptr<ProcessSet>& set : over) set->end(why);
  engine_->log().info("goes on as rank ", rank(), " of ", size(), " in epoch ", epoch());
}

}  // namespace horo::engine
