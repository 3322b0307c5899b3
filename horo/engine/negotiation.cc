#include "horo/engine/negotiation.h"

#include <algorithm>
#include <utility>

#include "horo/base/text.h"

namespace horo::engine {

Negotiation::Negotiation(Tree tree, NegotiationOptions options)
    : tree_(std::move(tree)),
      options_(std::move(options)),
      merge_(tree_, cache_),
      coordinator_(options_.coordinator, cache_),
      child_waits_(tree_.children.size(), false),
      child_heard_(tree_.children.size(), 0) {
  if (is_root() && options_.tuner) tuner_.emplace(*options_.tuner);
}

void Negotiation::announce(const UnitPtr& unit, Time now) {
  const uint32_t id = cache_.id_of(unit->key());
  const Unit* cached = id == 0 ? nullptr : cache_.find(id);
  if (cached == nullptr || (cached != unit.get() && !agree(*cached, *unit))) return announce_in_full(*unit, now);
  // From now on this rank's own description stands for it: the next look at the two is short.
  if (cached != unit.get() && *cached == *unit) cache_.put(id, unit);
  ++counters_.known;
  announced_.get(id).first->second = unit;
  merge_.add_known(merge_.self(), id, false, now);
}

void Negotiation::announce_in_full(const Unit& unit, Time now) {
  ++counters_.in_full;
  merge_.add(merge_.self(), {{{unit, {}}}, false}, now);
}

void Negotiation::call_members(const std::vector<int>& ranks) {
  options_.coordinator.ranks = ranks;
  coordinator_.call_members(ranks);
}

void Negotiation::join() { joining_.push_back(tree_.self); }

// What a member handed in before it joined counts, also when it must say it again: a join waits for that.
void Negotiation::apply_joins() {
  if (joining_.empty() || merge_.owed()) return;
  for (int member : joining_) merge_.join(member);
  newly_joined_.insert(newly_joined_.end(), joining_.begin(), joining_.end());
  joining_.clear();
}

Status Negotiation::receive(int from, std::span<const std::byte> message, Time now) {
  const int members = static_cast<int>(options_.coordinator.ranks.size());
  if (from == tree_.parent) {
    HORO_ASSIGN(Down down, decode_down(message, members));
    for (const Batch& batch : down.batches) {
      for (const Item& item : batch.items) {
        if (!item.unit && cache_.find(item.id) == nullptr) {
          return {Code::kCorrupt, text("member ", from, " speaks of unit ", item.id, ", which nobody has named")};
        }
      }
    }
    on_down(std::move(down), now);
    return {};
  }
  const int child = tree_.index_of(from);
  if (child < 0) return {Code::kCorrupt, text("a message of member ", from, ", which is no neighbour")};
  HORO_ASSIGN(Up up, decode_up(message, members));
  on_up(static_cast<size_t>(child), up, now);
  return {};
}

void Negotiation::on_up(size_t child, const Up& up, Time now) {
  child_waits_[child] = up.waiting;
  if (notes_ready_) note_ready_of(child, up);
  for (uint32_t id : up.known) merge_.add_known(child, id, false, now);
  for (uint32_t id : up.partial) merge_.add_known(child, id, true, now);
  for (const Arrived& arrived : up.arrived) {
    if (!outdated(arrived.variants.front().unit.key(), up)) merge_.add(child, arrived, now);
  }
  joining_.insert(joining_.end(), up.joined.begin(), up.joined.end());
  for (const Stalled& stalled : up.stalled) {
    if (!outdated(stalled.key, up)) merge_.note_stalled(child, stalled, now - options_.stall_warning, now);
  }
  if (up.heard == child_heard_[child]) return;
  child_heard_[child] = up.heard;
  const uint64_t by_all = *std::min_element(child_heard_.begin(), child_heard_.end());
  merge_.all_heard(by_all);
  std::erase_if(failed_at_, [&](const auto& failed) { return failed.second <= by_all; });
}

bool Negotiation::outdated(const std::string& key, const Up& up) const {
  if (failed_at_.empty()) return false;
  auto failed = failed_at_.find(key);
  return failed != failed_at_.end() && up.heard < failed->second;
}

void Negotiation::note_ready_of(size_t child, const Up& up) {
  for (const std::vector<uint32_t>* ids : {&up.known, &up.partial}) {
    for (uint32_t id : *ids) {
      if (const Unit* unit = cache_.find(id)) ready_.push_back({unit->key(), tree_.below[child]});
    }
  }
  for (const Arrived& arrived : up.arrived) {
    ready_.push_back({arrived.variants.front().unit.key(), tree_.below[child]});
  }
}

void Negotiation::send_down(const Down& down) {
  if (tree_.children.empty()) return;
  const std::vector<std::byte> message = encode(down);
  for (int child : tree_.children) outputs_.emplace_back(output::Send{child, message});
}

UnitPtr Negotiation::take_announced(uint32_t id) {
  auto found = announced_.find(id);
  if (found == announced_.end()) return nullptr;
  UnitPtr unit = std::move(found->second);
  announced_.erase(found);
  return unit;
}

// Children first: they need not wait for what this rank does.
void Negotiation::on_down(Down down, Time now) {
  send_down(down);
  ++heard_;
  std::vector<UnitPtr> again;  // Announced by a number that the root has not heard and forgets.
  for (uint32_t id : down.forgotten) {
    if (UnitPtr unit = take_announced(id)) again.push_back(std::move(unit));
    merge_.forget(id, heard_, now);
    cache_.forget(id);
  }
  for (Failure& failure : down.failures) {
    merge_.drop(failure.key);
    if (!tree_.children.empty()) failed_at_[failure.key] = heard_;
    take_announced(cache_.id_of(failure.key));
    std::erase_if(again, [&](const UnitPtr& unit) { return unit->key() == failure.key; });
    outputs_.emplace_back(output::Fail{std::move(failure.key), std::move(failure.message)});
  }
  if (down.tuning) outputs_.emplace_back(output::Tune{*down.tuning});
  for (Batch& batch : down.batches) {
    output::Run run;
    run.units.reserve(batch.items.size());
    for (Item& item : batch.items) {
      take_announced(item.id);
      UnitPtr unit = item.unit ? std::make_shared<Unit>(std::move(*item.unit)) : cache_.share(item.id);
      if (item.unit && item.id != 0) cache_.put(item.id, unit);
      merge_.drop(unit->key());
      std::erase_if(again, [&](const UnitPtr& other) { return other->key() == unit->key(); });
      run.units.push_back(std::move(unit));
    }
    outputs_.emplace_back(std::move(run));
  }
  if (down.all_joined) {
    merge_.clear_joined();
    outputs_.emplace_back(output::Joined{*down.all_joined});
  }
  if (down.abort) outputs_.emplace_back(output::Abort{*down.abort});
  for (const UnitPtr& unit : again) announce_in_full(*unit, now);
}

bool Negotiation::anybody_waits() const {
  return waiting_ || std::find(child_waits_.begin(), child_waits_.end(), true) != child_waits_.end();
}

std::vector<Output> Negotiation::step(Time now) {
  apply_joins();
  merge_.expire_stalled(now - 2 * options_.stall_warning);
  const bool due = stalls_due(now);
  if (is_root()) {
    lead(now, due);
  } else {
    Up up;
    gather(up);
    if (due) report_stalls(up, now);
    up.heard = heard_;
    up.waiting = anybody_waits();
    if (!up.empty() || (up.waiting && !told_waiting_)) {
      told_waiting_ = up.waiting;
      outputs_.emplace_back(output::Send{tree_.parent, encode(up)});
    }
  }
  if (due) stall_check_ = next_stall_check();
  return std::exchange(outputs_, {});
}

bool Negotiation::stalls_due(Time now) {
  if (merge_.idle()) {
    stall_check_.reset();
    return merge_.has_stalled();
  }
  if (!stall_check_) {
    Time check = Time::max();
    if (options_.stall_warning > Duration::zero()) check = std::min(check, now + options_.stall_warning);
    if (may_abort()) check = std::min(check, now + options_.stall_abort);
    if (check != Time::max()) stall_check_ = check;
  }
  return merge_.has_stalled() || (stall_check_ && now >= *stall_check_);
}

std::optional<Time> Negotiation::next_stall_check() const {
  const Merge::Oldest oldest = merge_.oldest();
  if (oldest.since == Time::max()) return std::nullopt;
  Time next = Time::max();
  if (options_.stall_warning > Duration::zero() && oldest.named != Time::max()) {
    next = std::min(next, oldest.named + options_.stall_warning);
  }
  if (may_abort()) next = std::min(next, oldest.since + options_.stall_abort);
  return next == Time::max() ? std::nullopt : std::optional(next);
}

void Negotiation::gather(Up& up) {
  for (Merge::Complete& complete : merge_.take_complete()) {
    if (complete.id == 0) {
      up.arrived.push_back(std::move(complete.arrived));
    } else {
      (complete.arrived.partial ? up.partial : up.known).push_back(complete.id);
    }
  }
  std::sort(up.known.begin(), up.known.end());
  std::sort(up.partial.begin(), up.partial.end());
  up.joined = std::exchange(newly_joined_, {});
}

void Negotiation::report_stalls(Up& up, Time now) {
  if (options_.stall_warning == Duration::zero()) return;
  for (auto& [stalled, since] : merge_.take_stalled(now - options_.stall_warning, now)) {
    if (is_root()) {
      outputs_.emplace_back(output::Stall{stalled.key, std::move(stalled.missing), now - since});
    } else {
      up.stalled.push_back(std::move(stalled));
    }
  }
}

void Negotiation::lead(Time now, bool stalls) {
  Down down;
  for (Merge::Complete& complete : merge_.take_complete()) {
    coordinator_.complete(std::move(complete), merge_.joined(), now);
  }
  for (int member : std::exchange(newly_joined_, {})) last_joined_ = member;
  const bool all_joined = merge_.joined().size() == options_.coordinator.ranks.size();
  down = coordinator_.close(anybody_waits() || all_joined, merge_, now);
  if (tuner_ && !down.batches.empty()) tune(down, now);
  if (all_joined) down.all_joined = std::exchange(last_joined_, std::nullopt);
  if (stalls) {
    Up unused;
    report_stalls(unused, now);
    abort_when_stalled(down, now);
  }
  if (!down.empty()) on_down(std::move(down), now);
}

// The batches at hand were planned with the old settings and are run with the new: they belong to the step that does
// not count.
void Negotiation::tune(Down& down, Time now) {
  for (const Batch& batch : down.batches) {
    for (const Item& item : batch.items) {
      const Unit& unit = item.unit ? *item.unit : *cache_.find(item.id);
      tuner_->ran(unit.key(), unit.bytes());
    }
  }
  down.tuning = tuner_->step(now);
  if (down.tuning) {
    coordinator_.set_threshold(down.tuning->threshold);
    coordinator_.set_window(down.tuning->window);
  }
  std::vector<Measured> measured = tuner_->take_measured();
  if (measured.empty()) return;
  const bool done = tuner_->done();
  outputs_.emplace_back(output::Tuned{std::move(measured), done ? std::optional(tuner_->gain()) : std::nullopt});
  if (done) tuner_.reset();
}

void Negotiation::abort_when_stalled(Down& down, Time now) {
  if (!may_abort()) return;
  for (const Stalled& stalled : merge_.older_than(now - options_.stall_abort)) {
    const output::Stall stall{stalled.key, stalled.missing, options_.stall_abort};
    aborted_ = true;
    down.abort = stall_text(stall, options_.coordinator.ranks) + "; giving up, as HORO_STALL_ABORT asks";
  }
}

Deadline Negotiation::next() const {
  const Deadline next = is_root() ? coordinator_.next() : Deadline::never();
  return stall_check_ && !merge_.idle() ? next.earlier(Deadline(*stall_check_)) : next;
}

std::set<int> Negotiation::awaited(bool unanswered) const {
  std::set<int> members = merge_.awaited();
  if (joined()) members.merge(merge_.not_joined());
  if (unanswered && !is_root()) members.insert(tree_.parent);
  return members;
}

std::string stall_text(const output::Stall& stall, const std::vector<int>& ranks) {
  std::vector<int> missing;
  for (int member : stall.missing) missing.push_back(ranks[static_cast<size_t>(member)]);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(stall.waited).count();
  return text("tensor '", stall.key, "' was handed in by some ranks ", seconds, " s ago, but not by ",
              ranks_text(missing), ", which may have taken another path through the program, or be late");
}

}  // namespace horo::engine
