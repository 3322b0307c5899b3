// The part of the control thread that acts on losses: it feeds the state machines and carries out what they ask for.
#include <algorithm>

#include "horo/base/failpoint.h"
#include "horo/base/text.h"
#include "horo/group/control.h"
#include "horo/rendezvous/message.h"

namespace horo::group {

using rendezvous::LossReason;
namespace input = rendezvous::input;
namespace output = rendezvous::output;

namespace {

constexpr auto kWaitIsOld = std::chrono::milliseconds(250);  // Groups repeat what they wait for every 100 ms.
constexpr auto kFadeLimit = std::chrono::milliseconds(300);
constexpr size_t kServePiece = size_t{4} << 20;

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

void Control::tick(Time now) {
  if (auto at = membership_.next_tick(); at && *at <= now) {
    step(input::Tick{});
    release_groups();  // Who did not answer is lost.
  }
  update_waits(now);
  if (auto at = suspicion_.next_tick(); at && *at <= now) watch(rendezvous::watch::Tick{});
  {
    std::lock_guard lock(mutex_);
    arrivals_.expire(now);
  }
  std::vector<int> faded;
  for (const auto& [rank, limit] : fading_) {
    if (limit <= now) faded.push_back(rank);
  }
  for (int rank : faded) lose(rank, links_.at(rank)->said_goodbye ? LossReason::kLeft : LossReason::kLink);
}

// What a rank said before it was lost counts, and nothing after: goodbye, or that this rank, which was stopped, is
// evicted.
void Control::hear_out(Link& link) {
  if (link.channel.fd() >= 0) (void)read_messages(link).ok();  // That it has ended shows to the poller.
}

void Control::lose(int rank, LossReason reason) {
  hear_out(*links_.at(rank));
  fading_.erase(rank);
  step(input::Lost{{rank, reason}});
  release_groups();
  over_changed();  // It may have been killed when it was about to wake this rank's loop.
}

// A rank that leaves has completed its operations, but what it sent may still be on its way to those who have not. So
// it counts as lost when somebody misses it (found_dead, stream_ended, whoever reforms the job or makes a group with
// it), or after a while. A rank whose stream ended gets as long to say goodbye or to show that it was killed.
void Control::fade(int rank) {
  if (membership_.lost().contains(rank)) return;
  fading_.try_emplace(rank, Clock::now() + kFadeLimit);
  // Not at once: a message of its may be in our hands.
  if (links_.at(rank)->said_goodbye && wanted_.contains(rank)) post([this, rank] { lose(rank, LossReason::kLeft); });
}

void Control::want(const std::vector<int>& ranks, bool wanted) {
  for (int rank : ranks) {
    if (rank == options_.self.rank) continue;
    if (!wanted) {
      wanted_.erase(wanted_.find(rank));
      continue;
    }
    wanted_.insert(rank);
    if (fading_.contains(rank)) fade(rank);
  }
}

void Control::step(const rendezvous::Input& input) {
  const rendezvous::LostSet known = membership_.lost();
  const std::vector<rendezvous::Output> outputs = membership_.step(input, Clock::now());
  {
    // First: groups that end now name them, and whoever sees the new members knows why others are missing.
    std::lock_guard lock(mutex_);
    losses_ = membership_.lost().losses();
    std::erase_if(losses_,
                  [this](const rendezvous::Loss& loss) { return loss.rank == options_.self.rank; });  // fenced_
    changed_.notify_all();
  }
  if (membership_.lost() != known) watch(rendezvous::watch::Gone{membership_.lost().losses()});
  for (const rendezvous::Output& output : outputs) carry_out(output);
}

void Control::carry_out(const rendezvous::Output& output) {
  std::visit(Overloaded{
                 [&](const output::Send& send_to) {
                   const auto payload = rendezvous::encode(send_to.message);
                   for (int rank : send_to.to) {
                     HORO_FAILPOINT("membership.send");
                     send(rank, ControlType::kMembership, payload);
                   }
                 },
                 [&](const output::Revoke& revoke) {
                   log_.info("lost ", revoke.lost.to_string());
                   for (uint64_t id : revoke.groups) {
                     if (auto found = groups_.find(id); found != groups_.end()) found->second->revoke(revoke);
                     if (auto found = retired_.find(id); found != retired_.end()) {
                       report(revoke.epoch, found->second.progress);
                     }
                   }
                 },
                 [&](const output::Decide& decide) { decided(decide); },
                 [&](const output::Install& install) {
                   HORO_FAILPOINT("membership.install");
                   epoch_.store(install.epoch, std::memory_order_relaxed);
                   log_.set_epoch(install.epoch);
                   log_.info("epoch ", install.epoch, " with ", ranks_text(install.members));
                   for (net::Listener& listener : listeners_) listener.set_epoch(install.epoch);
                   std::lock_guard lock(mutex_);
                   members_ = install.members;
                   changed_.notify_all();
                 },
                 [&](const output::Release&) {},
                 [&](const output::Fence& fence) {
                   std::string why = text("rank ", options_.self.rank, " was evicted by rank ", fence.by, " (",
                                          rendezvous::name(fence.reason), "); the others went on without it");
                   log_.error(why, "; its operations fail from now on");
                   {
                     std::lock_guard lock(mutex_);
                     fenced_ = why;
                     changed_.notify_all();
                   }
                   for (auto& [id, group] : groups_) group->abandoned(Status(Code::kEvicted, why));
                 },
             },
             output);
}

void Control::decided(const rendezvous::output::Decide& decide) {
  HORO_FAILPOINT("membership.decide");
  for (const rendezvous::Transfer& transfer : decide.serve) {
    for (uint64_t operation = transfer.first; operation <= transfer.last; ++operation) {
      const auto is_it = [&](const Serving& one) {
        return one.group == decide.group && one.operation == operation && one.to == transfer.peer;
      };
      std::erase_if(serving_, is_it);  // Of an earlier round. What another server said meanwhile has taken its place.
      serving_.push_back({decide.group, operation, transfer.peer, 0});
    }
  }
  if (auto found = groups_.find(decide.group); found != groups_.end()) return found->second->decide(decide);
  settled(decide.epoch, decide.group);  // It has ended here: this rank lacks nothing of it.
}

std::optional<std::span<const std::byte>> Control::retained(uint64_t group, uint64_t operation) const {
  if (auto found = groups_.find(group); found != groups_.end()) return found->second->retained(operation);
  auto found = retired_.find(group);
  if (found == retired_.end()) return std::nullopt;
  return found->second.results ? found->second.results->retained(operation) : std::span<const std::byte>();
}

// Pieces of retained results go out as the channels take them.
void Control::serve_more() {
  for (auto it = serving_.begin(); it != serving_.end();) {
    const auto result = retained(it->group, it->operation);
    auto link = links_.find(it->to);
    if (!result || link == links_.end() || link->second->channel.fd() < 0 || membership_.lost().contains(it->to)) {
      it = serving_.erase(it);
      continue;
    }
    bool done = false;
    while (!done && link->second->channel.queued() < 2 * kServePiece) {
      const size_t bytes = std::min(kServePiece, result->size() - it->offset);
      done = it->offset + bytes == result->size();
      send(it->to, ControlType::kServe, result->subspan(it->offset, bytes),
           {it->group, it->operation, it->offset, done});
      it->offset += bytes;
    }
    it = done ? serving_.erase(it) : it + 1;  // The channel's readiness brings us back.
  }
}

void Control::watch(const rendezvous::watch::Input& input) {
  using namespace rendezvous::watch;
  for (const Output& output : suspicion_.step(input, Clock::now())) {
    std::visit(Overloaded{
                   [&](const Probe& probe) { send(probe.rank, ControlType::kProbe, {}); },
                   [&](const Name& name) {
                     log_.warning("rank ", name.rank, " has not answered for ", seconds(name.silent),
                                  " s (stopped, swapped out or cut off?); it is evicted after ",
                                  seconds(options_.freeze_timeout), " s (HORO_FREEZE_TIMEOUT)");
                   },
                   [&](const Recover& recover) { log_.warning("rank ", recover.rank, " answers again"); },
                   [&](const AskConsent& ask) {
                     rendezvous::Message about;
                     for (int rank : ask.silent) about.lost.add({rank, LossReason::kFrozen});
                     send(ask.rank, ControlType::kAsk, rendezvous::encode(about));
                   },
                   [&](const Consent& consent) {
                     send(consent.rank, ControlType::kConsent, {}, {.operation = consent.agrees ? 1U : 0U});
                   },
                   [&](const Evict& silent) { evict(silent); },
               },
               output);
  }
}

void Control::evict(const rendezvous::watch::Evict& evict) {
  for (int rank : evict.ranks) {
    log_.error("rank ", rank, " has not answered for ", seconds(evict.silent), " s and is evicted");
    hear_out(*links_.at(rank));
    fading_.erase(rank);
  }
  if (!evict.has_quorum) log_.error("too few of the job are heard: this rank is cut off, or most others are");
  step(input::Silent{evict.ranks});
  release_groups();
  over_changed();
}

void Control::keep_quorum(const std::vector<int>& ranks) {
  post([this, ranks] {
    step(input::Job{ranks});
    watch(rendezvous::watch::Job{options_.self.rank, ranks});
  });
}

void Control::update_waits(Time now) {
  std::erase_if(waits_, [&](const auto& wait) { return now - wait.second > kWaitIsOld; });
  std::vector<int> ranks = membership_.waiting_for();
  for (const auto& [rank, noted] : waits_) ranks.push_back(rank);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  std::erase_if(ranks, [&](int rank) { return membership_.lost().contains(rank); });
  if (ranks == watched_) return;
  watched_ = ranks;
  watch(rendezvous::watch::WaitingOn{ranks, now});
}

void Control::note_waiting(int rank, Time since) {
  post([this, rank, since] {
    (void)since;
    waits_[rank] = Clock::now();
    update_waits(Clock::now());
  });
}

void Control::stream_ended(int rank) {
  post([this, rank] { links_.at(rank)->said_goodbye ? lose(rank, LossReason::kLeft) : fade(rank); });
}

void Control::found_dead(int rank) {
  post([this, rank] {
    Link& link = *links_.at(rank);
    link.process_ended = true;
    hear_out(link);
    lose(rank, link.said_goodbye ? LossReason::kLeft : LossReason::kKilled);
  });
}

void Control::report(uint64_t epoch, const rendezvous::Report& report) {
  post([this, epoch, report] { step(input::Reported{epoch, report}); });
}

void Control::settled(uint64_t epoch, uint64_t group) {
  post([this, epoch, group] { step(input::Settled{epoch, group}); });
}

void Control::abandon(uint64_t group, const Status& why) {
  post([this, group, why] {
    if (auto found = groups_.find(group); found != groups_.end()) send_abandon(group, found->second->ranks(), why);
  });
}

void Control::send_abandon(uint64_t group, const std::vector<int>& ranks, const Status& why) {
  const auto words = encode(AbandonGroup{why.code(), why.message()});
  for (int rank : ranks) {
    if (rank != options_.self.rank) send(rank, ControlType::kAbandon, words, {.group = group});
  }
}

std::vector<rendezvous::Loss> Control::losses() const {
  std::lock_guard lock(mutex_);
  return losses_;
}

std::optional<std::string> Control::fenced() const {
  std::lock_guard lock(mutex_);
  return fenced_;
}

std::vector<int> Control::members_without(const std::vector<int>& gone, Deadline deadline) {
  const Wanted wanted(*this, gone);
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline.at(), [&] {
    return fenced_ || broken_ || std::none_of(gone.begin(), gone.end(), [&](int rank) {
             return std::find(members_.begin(), members_.end(), rank) != members_.end();
           });
  });
  return members_;
}

bool Control::members_differ_from(const std::vector<int>& members, Deadline deadline) {
  std::unique_lock lock(mutex_);
  while (members_ == members) {
    if (fenced_ || broken_ || !wait_for_news(lock, members, deadline)) return false;
  }
  return !fenced_;
}

}  // namespace horo::group
