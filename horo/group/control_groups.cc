// The part of the control thread through which the members of a new group meet.
//
// Every member sends what it brings (kJoinGroup) to the first member; when all have, the first one makes up the terms
// and sends them to all (kGroupReady). Groups of the same ranks that are made one after the other are told apart by
// their order, which is equal on all members.
#include <algorithm>

#include "horo/base/failpoint.h"
#include "horo/base/text.h"
#include "horo/group/control.h"

namespace horo::group {

namespace {

/// Groups repeat what they wait for as often.
constexpr auto kLookAgain = std::chrono::milliseconds(100);

/// Empty when all members have set alike what must be.
std::string difference(const std::map<int, GroupOffer>& join) {
  const auto& [first_rank, first] = *join.begin();
  for (const auto& [rank, offer] : join) {
    if (offer.settings == first.settings) continue;
    const auto [mine, theirs] =
        std::mismatch(first.settings.begin(), first.settings.end(), offer.settings.begin(), offer.settings.end());
    const bool both = mine != first.settings.end() && theirs != offer.settings.end();
    return text("the ranks of a group are set up differently: rank ", first_rank, " has ", both ? *mine : "fewer knobs",
                ", rank ", rank, " has ", both ? *theirs : "others", "; set it alike on all ranks");
  }
  return "";
}

}  // namespace

Result<GroupTerms> Control::agree_on_group(const std::vector<int>& ranks, GroupOffer offer, Deadline deadline) {
  const Wanted wanted(*this, ranks);
  std::unique_lock lock(mutex_);
  offer.attempt = ++attempts_;
  const JoinGroup wish{ranks, std::move(offer)};
  lock.unlock();
  HORO_FAILPOINT("group.offer");
  post([this, wish] { send_to_first(ControlType::kJoinGroup, wish); });
  const auto self = static_cast<size_t>(std::find(ranks.begin(), ranks.end(), options_.self.rank) - ranks.begin());
  lock.lock();
  while (true) {
    if (auto found = terms_.find(ranks); found != terms_.end() && !found->second.empty()) {
      GroupTerms terms = std::move(found->second.front());
      found->second.erase(found->second.begin());
      if (terms.attempts[self] == wish.offer.attempt) {
        if (!terms.refusal.empty()) return Status(Code::kMismatch, terms.refusal);
        return terms;
      }
      if (!terms.refusal.empty()) continue;  // There is no such group.
      lock.unlock();
      // What was offered for it is lost: who offered it has gone on.
      refuse_group(terms.id, ranks, Status(Code::kStopped, "it had waited too long for the others and tries again"),
                   nullptr);
      lock.lock();
      continue;
    }
    HORO_TRY(check_members(ranks));
    if (wait_for_news(lock, ranks, deadline)) continue;
    lock.unlock();
    post([this, wish] { send_to_first(ControlType::kWithdraw, wish); });
    return Status(Code::kTimeout, text("not all of ", ranks_text(ranks),
                                       " came to make a group in time; every member "
                                       "must make it, in the same order"));
  }
}

void Control::send_to_first(ControlType type, const JoinGroup& wish) {
  const int first = wish.ranks.front();
  if (first != options_.self.rank) return send(first, type, encode(wish));
  type == ControlType::kWithdraw ? on_withdraw(first, wish) : on_join(first, wish);
}

void Control::refuse_group(uint64_t group, const std::vector<int>& ranks, const Status& why,
                           std::function<void()> release) {
  post([this, group, ranks, why, release = std::move(release)]() mutable {
    send_abandon(group, ranks, why);
    close_streams(group);
    retire(group, ranks).release = std::move(release);
    say_left(group, ranks, 0, ControlType::kEndGroup);
    release_groups();
  });
}

void Control::on_join(int from, JoinGroup wish) {
  const std::vector<int>& ranks = wish.ranks;
  if (ranks.front() != options_.self.rank || std::find(ranks.begin(), ranks.end(), from) == ranks.end()) {
    return log_.error("rank ", from, " asks for a group that it or this rank has no place in");
  }
  auto& waiting = joins_[ranks];
  // A member that is ahead waits for its next turn.
  auto turn = std::find_if(waiting.begin(), waiting.end(), [&](const Join& join) { return join.count(from) == 0; });
  if (turn == waiting.end()) turn = waiting.emplace(waiting.end());
  turn->emplace(from, std::move(wish.offer));
  if (waiting.front().size() < ranks.size()) return;
  const Join complete = std::move(waiting.front());
  waiting.erase(waiting.begin());
  if (waiting.empty()) joins_.erase(ranks);
  announce(ranks, complete);
}

// When the terms are under way already, whoever withdraws gets them, and refuses the group.
void Control::on_withdraw(int from, const JoinGroup& wish) {
  auto found = joins_.find(wish.ranks);
  if (found == joins_.end()) return;
  for (Join& join : found->second) {
    auto offer = join.find(from);
    if (offer != join.end() && offer->second.attempt == wish.offer.attempt) join.erase(offer);
  }
  std::erase_if(found->second, [](const Join& join) { return join.empty(); });
  if (found->second.empty()) joins_.erase(found);
}

// Unique in the job: 16 bits of who made it and 16 bits of how many that was. After 65,536 the count begins anew, and
// passes over groups that still are, here or at another member. None when all of them are.
std::optional<uint64_t> Control::new_group_id() {
  const auto in_use = [this](uint64_t id) {
    const auto is_it = [id](const GroupTerms& terms) { return terms.id == id; };
    if (groups_.contains(id) || retired_.contains(id) || departed_.contains(id)) return true;
    std::lock_guard lock(mutex_);
    return given_up_.contains(id) || std::any_of(terms_.begin(), terms_.end(), [&](const auto& waiting) {
             return std::any_of(waiting.second.begin(), waiting.second.end(), is_it);
           });
  };
  for (int tried = 0; tried <= 0xFFFF; ++tried) {
    const uint64_t id = uint64_t{static_cast<uint32_t>(options_.self.rank)} << 16 | (++groups_made_ & 0xFFFF);
    if (!in_use(id)) return id;
  }
  return std::nullopt;
}

void Control::announce(const std::vector<int>& ranks, const Join& join) {
  const auto id = new_group_id();
  const bool shares_memory =
      std::all_of(join.begin(), join.end(), [](const auto& one) { return one.second.shares_memory; });
  GroupReady ready{ranks, {}};
  ready.terms.id = id.value_or(0);
  ready.terms.epoch = epoch();
  ready.terms.needs_wires = join.begin()->second.needs_wires;
  ready.terms.shares_memory = shares_memory;
  for (int rank : ranks) ready.terms.areas.push_back(join.at(rank).area);
  for (int rank : ranks) ready.terms.pages.push_back(join.at(rank).page);
  for (int rank : ranks) ready.terms.attempts.push_back(join.at(rank).attempt);
  ready.terms.refusal = id ? difference(join) : text("rank ", options_.self.rank, " leads 65,536 groups; end some");
  const std::vector<std::byte> payload = encode(ready);
  for (int rank : ranks) {
    HORO_FAILPOINT("group.announce");
    if (rank != options_.self.rank) send(rank, ControlType::kGroupReady, payload);
  }
  on_ready(std::move(ready));
}

void Control::on_ready(GroupReady ready) {
  const GroupTerms& terms = ready.terms;
  std::lock_guard lock(mutex_);
  if (terms.refusal.empty() && (terms.needs_wires || !terms.shares_memory)) {
    for (const Status& refused : arrivals_.expect(terms.id, terms.epoch, ready.ranks)) log_.warning(refused.message());
  }
  terms_[std::move(ready.ranks)].push_back(std::move(ready.terms));
  changed_.notify_all();
}

Status Control::admit_stream(const net::AttachRequest& about) const {
  std::lock_guard lock(mutex_);
  return arrivals_.admit(about);
}

void Control::close_streams(uint64_t group) {
  std::lock_guard lock(mutex_);
  arrivals_.close(group);
}

Result<net::AttachedStream> Control::take_stream(uint64_t group, const std::vector<int>& ranks, int from,
                                                 uint32_t stream, Deadline deadline) {
  std::unique_lock lock(mutex_);
  while (true) {
    if (auto taken = arrivals_.take(group, from, stream)) return std::move(*taken);
    HORO_TRY(check_group(group, ranks));
    if (!wait_for_news(lock, {from}, deadline)) {
      return Status(Code::kTimeout, text("rank ", from, " did not open stream ", stream, " of a new group in time"));
    }
  }
}

Status Control::check_coming(uint64_t group, const std::vector<int>& ranks, int rank) {
  note_waiting(rank, Clock::now());
  std::lock_guard lock(mutex_);
  return check_group(group, ranks);
}

Status Control::check_group(uint64_t group, const std::vector<int>& ranks) const {
  if (auto found = given_up_.find(group); found != given_up_.end()) return found->second;
  return check_members(ranks);
}

Status Control::check_members(const std::vector<int>& ranks) const {
  if (fenced_) return {Code::kEvicted, *fenced_};
  if (broken_) return *broken_;
  for (const rendezvous::Loss& loss : losses_) {
    if (std::find(ranks.begin(), ranks.end(), loss.rank) == ranks.end()) continue;
    return Status(Code::kPeerLost, text("cannot make a group with rank ", loss.rank, ", which is gone (",
                                        rendezvous::name(loss.reason), ")"))
        .with_lost({loss.rank});
  }
  return {};
}

bool Control::wait_for_news(std::unique_lock<std::mutex>& lock, const std::vector<int>& from, Deadline deadline) {
  const Time since = Clock::now();
  const Deadline look = deadline.earlier(Deadline(since + kLookAgain));
  if (changed_.wait_until(lock, look.at()) == std::cv_status::no_timeout) return true;
  if (deadline.expired()) return false;
  lock.unlock();
  for (int rank : from) {
    if (rank != options_.self.rank) note_waiting(rank, since);
  }
  lock.lock();
  return true;
}

Status Control::add_group(const std::shared_ptr<Group>& group) {
  return run([&] {
    groups_[group->id()] = group;
    step(rendezvous::input::Opened{group->id(), group->ranks()});
    tell_what_happened(*group);
  });
}

// Others may have had the group ready before this rank, and ended or given it up by now.
void Control::tell_what_happened(Group& group) {
  if (auto found = departed_.find(group.id()); found != departed_.end()) {
    for (const auto& [rank, departure] : found->second) group.member_left(rank, departure.after);
  }
  std::unique_lock lock(mutex_);
  if (auto given_up = given_up_.extract(group.id())) {
    lock.unlock();
    group.abandoned(given_up.mapped());
  } else {
    lock.unlock();
  }
  if (auto why = fenced()) group.abandoned(Status(Code::kEvicted, *why));
}

void Control::leave_group(const Group& group) {
  const Status said = run([&] {
    if (groups_.contains(group.id())) say_left(group.id(), group.ranks(), group.passed(), ControlType::kLeaveGroup);
  });
  if (!said.ok()) log_.debug("nobody is told that group ", group.id(), " was left: ", said);
}

void Control::say_left(uint64_t group, const std::vector<int>& ranks, uint64_t passed, ControlType how) {
  for (int rank : ranks) {
    if (rank != options_.self.rank) send(rank, how, {}, {.group = group, .operation = passed});
  }
}

Control::Retired& Control::retire(uint64_t group, const std::vector<int>& ranks) {
  Retired& retired = retired_[group];
  retired.others.insert(ranks.begin(), ranks.end());
  retired.others.erase(options_.self.rank);
  std::lock_guard lock(mutex_);
  given_up_.erase(group);
  return retired;
}

void Control::remove_group(const Group& group, std::function<void()> release) {
  std::shared_ptr<Group> kept;
  const Status removed = run([&] {
    const auto found = groups_.find(group.id());
    if (found == groups_.end()) return;
    kept = std::move(found->second);
    groups_.erase(found);
    partly_served_.forget(group.id());
    Retired& retired = retire(group.id(), group.ranks());
    retired.release = std::move(release);
    retired.progress = group.progress();
    retired.results = group.results();
    // What was decided about it and has not come is for nobody here.
    step(rendezvous::input::Settled{membership_.epoch(), group.id()});
    say_left(group.id(), group.ranks(), group.passed(), ControlType::kEndGroup);
    release_groups();
  });
  if (!removed.ok()) log_.debug("nobody is told that group ", group.id(), " has ended: ", removed);
}

// Evicted, not dead: when it wakes up it goes on where it was, reads what was staged for it, and finds out from its
// words in the group's page.
bool Control::may_wake_up(int rank) const {
  const Link& link = *links_.at(rank);
  return link.memory && !link.process_ended && rendezvous::is_eviction(*membership_.lost().reason(rank));
}

// What a rank staged for a group may be read, its page revoked, and its last result missing, until every other member
// has ended the group too, or is certainly gone. To have left it is not enough: a member that reforms the job still
// holds the group it left.
void Control::release_groups() {
  std::vector<uint64_t> ended;
  for (auto it = retired_.begin(); it != retired_.end();) {
    const std::map<int, Departure>& departed = departed_[it->first];
    std::erase_if(it->second.others, [&](int rank) {
      const auto found = departed.find(rank);
      return (found != departed.end() && found->second.ended) ||
             (membership_.lost().contains(rank) && !may_wake_up(rank));
    });
    if (!it->second.others.empty()) {
      ++it;
      continue;
    }
    if (it->second.release) it->second.release();
    release_more(it->first);
    departed_.erase(it->first);
    ended.push_back(it->first);
    it = retired_.erase(it);
  }
  for (uint64_t group : ended) step(rendezvous::input::Closed{group});
}

}  // namespace horo::group
