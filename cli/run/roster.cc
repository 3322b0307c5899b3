#include "cli/run/roster.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "horo/base/text.h"

namespace horo::cli::launch {

namespace {

using Kind = Roster::Step::Kind;

double seconds_of(Duration span) { return std::chrono::duration<double>(span).count(); }

}  // namespace

Roster::Roster(RosterOptions options, const std::vector<Host>& hosts, const Placement& placement)
    : options_(options), random_(options.seed) {
  for (const Host& host : hosts) {
    order_.push_back(host.name);
    places_[host.name].slots = host.slots;
  }
  for (const RankPlace& rank : placement.ranks) {
    const std::string& host = placement.hosts[rank.host].name;
    places_[host].reach = Reach::kReady;
    seats_[rank.rank] = {.host = host, .slot = rank.local_rank, .leave_by = {}};
    next_seat_ = std::max(next_seat_, rank.rank + 1);
  }
}

Duration Roster::wait_after(const Cooldown& cooldown, int failures) {
  constexpr int kMostDoublings = 40;
  const double seconds = seconds_of(cooldown.least) * std::exp2(std::min(failures - 1, kMostDoublings));
  const double most = seconds_of(cooldown.most);
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(std::min(seconds, most)));
}

/// What happens to it, in words.
std::string Roster::punish(Penalty& penalty, Time now) {
  ++penalty.failures;
  if (!options_.cooldown) {
    penalty.until = Time::max();
    return "is not used again (--blacklist-cooldown-range)";
  }
  const double fraction = std::uniform_real_distribution<double>(0, 1)(random_);
  const auto extra = std::chrono::duration_cast<Duration>(options_.cooldown->least * fraction);
  const Duration wait = std::min(wait_after(*options_.cooldown, penalty.failures) + extra, options_.cooldown->most);
  penalty.until = now + wait;
  return text("is used again in ", std::round(seconds_of(wait) * 10) / 10, " s");
}

void Roster::offered(const std::vector<Host>& hosts, Time) {
  for (auto& [name, place] : places_) place.slots = 0;
  for (const Host& host : hosts) {
    if (!places_.contains(host.name)) order_.push_back(host.name);
    places_[host.name].slots = host.slots;
  }
}

void Roster::host_ready(const std::string& host) {
  Place& place = places_[host];
  place.reach = Reach::kReady;
  place.answer_by = Deadline::never();
}

void Roster::host_lost(const std::string& host, const std::string& why, Time now) {
  Place& place = places_[host];
  const bool was_asked = place.reach == Reach::kAsked;
  place.reach = Reach::kNone;
  place.answer_by = Deadline::never();
  std::erase_if(seats_, [&](const auto& seat) { return seat.second.host == host; });
  const std::string then = punish(place.penalty, now);
  say(was_asked ? text("host ", host, " cannot be used: ", why, "; it ", then) : text("host ", host, " ", then));
}

void Roster::rank_ended(const RankEnd& end, Time now) {
  const auto found = seats_.find(end.rank);
  if (found == seats_.end()) return;
  const Seat seat = found->second;
  seats_.erase(found);
  if (seat.leaving || seat.ending) return;
  Penalty& penalty = places_[seat.host].slot_penalties[seat.slot];
  if (!end.failed()) {
    penalty.until = Time::max();  // Whoever came next would find nothing to do.
    return;
  }
  const std::string then = punish(penalty, now);
  const std::string why = end.error.empty() ? "" : text(" (", end.error, ")");
  const std::string who = seat.admitted ? "" : text("; newcomer ", end.rank, " ended before it had joined", why);
  say(text("slot ", seat.slot, " of host ", seat.host, " ", then, who));
}

void Roster::rank_admitted(int seat, bool admitted) {
  if (const auto found = seats_.find(seat); found != seats_.end()) found->second.admitted = admitted;
}

bool Roster::is_admitted(int seat) const {
  const auto found = seats_.find(seat);
  return found != seats_.end() && found->second.admitted;
}

void Roster::refused(int seat) {
  const auto found = seats_.find(seat);
  if (found == seats_.end() || std::exchange(found->second.ending, true)) return;
  steps_.push_back({.kind = Kind::kEnd, .host = found->second.host, .seat = seat, .words = {}});
}

std::vector<Roster::Step> Roster::step(Time now) {
  give_up_silent_hosts(now);
  end_those_who_stay(now);
  if (!stopped_) {
    ask_to_leave(now);
    cools_ = Deadline::never();
    fill(now);
    release_hosts();
  }
  return std::exchange(steps_, {});
}

void Roster::give_up_silent_hosts(Time now) {
  for (auto& [name, place] : places_) {
    if (place.reach != Reach::kAsked || !place.answer_by.expired(now)) continue;
    steps_.push_back({.kind = Kind::kGiveUp, .host = name, .words = {}});
    host_lost(name, text("no answer within ", seconds_of(options_.start_timeout), " s (--start-timeout)"), now);
  }
}

void Roster::end_those_who_stay(Time now) {
  for (auto& [number, seat] : seats_) {
    if (!seat.leaving || seat.ending || !seat.leave_by.expired(now)) continue;
    seat.ending = true;
    say(text("rank ", number, " on ", seat.host, " did not leave within ", seconds_of(options_.leave_limit),
             " s (--elastic-timeout): it is ended"));
    steps_.push_back({.kind = Kind::kEnd, .host = seat.host, .seat = number, .words = {}});
  }
}

int Roster::staying(const std::string& host) const {
  return static_cast<int>(std::count_if(seats_.begin(), seats_.end(), [&](const auto& seat) {
    return seat.second.host == host && !seat.second.leaving && !seat.second.ending;
  }));
}

int Roster::staying() const {
  return static_cast<int>(std::count_if(seats_.begin(), seats_.end(),
                                        [](const auto& seat) { return !seat.second.leaving && !seat.second.ending; }));
}

bool Roster::has_seats(const std::string& host) const {
  return std::any_of(seats_.begin(), seats_.end(), [&](const auto& seat) { return seat.second.host == host; });
}

// The state of training is with the ranks: the last of them that has it cannot go.
void Roster::ask_to_leave(Time now) {
  for (const std::string& name : order_) {
    const int slots = places_[name].slots;
    for (auto seat = seats_.rbegin(); seat != seats_.rend() && staying(name) > slots; ++seat) {
      Seat& one = seat->second;
      if (one.host != name || one.leaving || one.ending) continue;
      const bool is_last = one.admitted && std::none_of(seats_.begin(), seats_.end(), [&](const auto& other) {
                             const Seat& them = other.second;
                             return &them != &one && them.admitted && !them.leaving && !them.ending;
                           });
      if (!is_last) {
        ask(seat->first, one, now);
      } else if (!std::exchange(told_of_last_, true)) {
        say(text("rank ", seat->first, " on ", name, " stays, although its slot is gone: no other rank has the state"));
      }
    }
  }
}

void Roster::ask(int number, Seat& seat, Time now) {
  const std::string why = text("its slot on host ", seat.host, " is gone");
  seat.leaving = true;
  seat.leave_by = Deadline(now + options_.leave_limit);
  say(text("rank ", number, " on ", seat.host, " is asked to leave: ", why));
  steps_.push_back({.kind = Kind::kLeave, .host = seat.host, .seat = number, .words = why});
}

void Roster::fill(Time now) {
  for (const std::string& name : order_) {
    Place& place = places_[name];
    if (place.slots == 0) continue;
    if (place.penalty.holds(now)) {
      cools_ = cools_.earlier(Deadline(*place.penalty.until));
      continue;
    }
    fill(name, place, now);
  }
}

void Roster::fill(const std::string& name, Place& place, Time now) {
  while (options_.most_ranks == 0 || staying() < options_.most_ranks) {
    const auto slot = staying(name) < place.slots ? free_slot(name, place, now) : std::nullopt;
    if (!slot) return note_cooling(place, now);
    if (place.reach == Reach::kNone) {
      place.reach = Reach::kAsked;
      place.answer_by = Deadline(now + options_.start_timeout);
      steps_.push_back({.kind = Kind::kReach, .host = name, .words = {}});
    }
    if (place.reach != Reach::kReady) return;
    const int seat = next_seat_++;
    seats_[seat] = {.host = name, .slot = *slot, .admitted = false, .leave_by = {}};
    steps_.push_back(
        {.kind = Kind::kStart, .host = name, .seat = seat, .slot = *slot, .slots = place.slots, .words = {}});
  }
}

void Roster::note_cooling(const Place& place, Time now) {
  for (const auto& [slot, penalty] : place.slot_penalties) {
    if (slot < place.slots && penalty.holds(now)) cools_ = cools_.earlier(Deadline(*penalty.until));
  }
}

std::optional<int> Roster::free_slot(const std::string& name, const Place& place, Time now) const {
  std::set<int> taken;
  for (const auto& [number, seat] : seats_) {
    if (seat.host == name) taken.insert(seat.slot);
  }
  for (int slot = 0; slot < place.slots; ++slot) {
    if (taken.contains(slot)) continue;
    const auto penalty = place.slot_penalties.find(slot);
    if (penalty == place.slot_penalties.end() || !penalty->second.holds(now)) return slot;
  }
  return {};
}

void Roster::release_hosts() {
  for (auto& [name, place] : places_) {
    if (place.slots > 0 || place.reach != Reach::kReady || has_seats(name)) continue;
    place.reach = Reach::kNone;
    steps_.push_back({.kind = Kind::kRelease, .host = name, .words = {}});
  }
}

Deadline Roster::deadline() const {
  Deadline earliest = stopped_ ? Deadline::never() : cools_;
  for (const auto& [name, place] : places_) {
    if (place.reach == Reach::kAsked) earliest = earliest.earlier(place.answer_by);
  }
  for (const auto& [number, seat] : seats_) {
    if (seat.leaving && !seat.ending) earliest = earliest.earlier(seat.leave_by);
  }
  return earliest;
}

bool Roster::may_grow() const {
  if (stopped_) return false;
  const bool comes = std::any_of(seats_.begin(), seats_.end(), [](const auto& seat) {
    return !seat.second.admitted && !seat.second.leaving && !seat.second.ending;
  });
  const bool is_asked = std::any_of(places_.begin(), places_.end(),
                                    [](const auto& place) { return place.second.reach == Reach::kAsked; });
  const bool has_room = options_.most_ranks == 0 || staying() < options_.most_ranks;
  const bool is_free = std::any_of(places_.begin(), places_.end(),
                                   [&](const auto& place) { return has_slot_left(place.first, place.second); });
  return options_.discovers || comes || is_asked || (has_room && is_free);
}

bool Roster::has_slot_left(const std::string& name, const Place& place) const {
  // At the end of all cooldowns.
  const Time later = Time::max() - std::chrono::seconds(1);
  return !place.penalty.holds(later) && staying(name) < place.slots && free_slot(name, place, later).has_value();
}

}  // namespace horo::cli::launch
