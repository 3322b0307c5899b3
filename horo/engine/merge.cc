#include "horo/engine/merge.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace horo::engine {

Merge::Merge(const Tree& tree, const Cache& cache) : tree_(tree), cache_(cache) {}

Merge::Entry& Merge::entry(const std::string& key, Time now) {
  auto [found, fresh] = entries_.get(key);
  Entry& entry = found->second;
  if (fresh) {
    entry.id = 0;
    entry.partial = entry.touched = false;
    entry.ways.assign(self() + 1, Way::kNone);
    entry.variants.clear();
    entry.since = entry.named = now;
  }
  if (!std::exchange(entry.touched, true)) touched_.push_back(&found->first);
  return entry;
}

void Merge::add_known(size_t source, uint32_t id, bool partial, Time now) {
  const Unit* unit = cache_.find(id);
  if (unit == nullptr) {
    if (auto found = forgotten_.find(id); found != forgotten_.end()) {
      entry(found->second.key, now).ways[source] = Way::kAgain;
    }
    return;
  }
  Entry& here = entry(unit->key(), now);
  here.id = id;
  here.partial |= partial;
  here.ways[source] = Way::kById;
}

void Merge::add(size_t source, const Arrived& arrived, Time now) {
  Entry& here = entry(arrived.variants.front().unit.key(), now);
  here.partial |= arrived.partial;
  here.ways[source] = Way::kInFull;
  for (const Variant& variant : arrived.variants) {
    add_variant(here, variant, variant.members.empty() ? members_at(source) : variant.members);
  }
}

void Merge::add_variant(Entry& entry, const Variant& variant, const std::vector<int>& members) {
  for (Variant& known : entry.variants) {
    if (!agree(known.unit, variant.unit)) continue;
    known.members.insert(known.members.end(), members.begin(), members.end());
    return;
  }
  entry.variants.push_back({variant.unit, members});
}

std::vector<int> Merge::members_at(size_t source) const {
  if (source == self()) return {tree_.self};
  std::vector<int> members;
  for (int member : tree_.below[source]) {
    if (!joined_.contains(member)) members.push_back(member);
  }
  return members;
}

void Merge::join(int member) {
  joined_.insert(member);
  all_touched_ = true;
}

bool Merge::exempt(size_t source) const {
  if (joined_.empty()) return false;
  if (source == self()) return joined_.contains(tree_.self);
  return std::all_of(tree_.below[source].begin(), tree_.below[source].end(),
                     [&](int member) { return joined_.contains(member); });
}

bool Merge::complete(const Entry& entry) const {
  bool any = false;
  for (size_t source = 0; source < entry.ways.size(); ++source) {
    any |= entry.ways[source] != Way::kNone;
    if (entry.ways[source] == Way::kAgain) return false;
    if (entry.ways[source] == Way::kNone && !exempt(source)) return false;
  }
  return any;
}

void Merge::forget(uint32_t id, uint64_t heard, Time now) {
  const Unit* unit = cache_.find(id);
  if (unit == nullptr) return;
  if (!tree_.children.empty()) forgotten_[id] = {unit->key(), heard};
  if (auto passed = passed_.find(id); passed != passed_.end()) {
    Entry& again = entry(unit->key(), now);
    again.id = id;
    for (size_t source = 0; source < self(); ++source) {
      if (again.ways[source] == Way::kNone) again.ways[source] = passed->second[source];
    }
    passed_.erase(passed);
  }
  auto found = entries_.find(unit->key());
  if (found == entries_.end() || found->second.id != id) return;
  found->second.id = 0;
  for (Way& way : found->second.ways) {
    if (way == Way::kById) way = Way::kAgain;
  }
}

bool Merge::owed() const {
  return std::any_of(entries_.begin(), entries_.end(), [](const auto& item) {
    const std::vector<Way>& ways = item.second.ways;
    return std::find(ways.begin(), ways.end(), Way::kAgain) != ways.end();
  });
}

void Merge::all_heard(uint64_t heard) {
  std::erase_if(forgotten_, [&](const auto& number) { return number.second.heard <= heard; });
}

void Merge::drop(const std::string& key) {
  if (!named_below_.empty()) named_below_.erase(key);
  if (!to_name_.empty()) to_name_.erase(key);
  if (!passed_.empty()) {
    if (auto passed = passed_.find(cache_.id_of(key)); passed != passed_.end()) passed_.erase(passed);
  }
  if (entries_.empty()) return;
  if (auto found = entries_.find(key); found != entries_.end()) erase(found);
}

void Merge::erase(Entries::iterator at) {
  if (at->second.touched) std::erase(touched_, &at->first);
  at->second.variants.clear();
  entries_.erase(at);
}

// What came by number and what came in full are put together where both did.
Merge::Complete Merge::finish(Entry& entry) {
  Complete complete;
  for (size_t source = 0; source < entry.ways.size(); ++source) {
    if (entry.ways[source] == Way::kNone) entry.partial = true;
    if (entry.ways[source] == Way::kById && !entry.variants.empty()) {
      add_variant(entry, {*cache_.find(entry.id), {}}, members_at(source));
    }
  }
  complete.arrived.partial = entry.partial;
  if (entry.variants.empty()) {
    complete.id = entry.id;
    if (!tree_.is_root() && !tree_.children.empty()) passed_.get(entry.id).first->second = entry.ways;
  } else {
    complete.arrived.variants = std::move(entry.variants);
    for (Variant& variant : complete.arrived.variants) std::sort(variant.members.begin(), variant.members.end());
    if (complete.arrived.variants.size() == 1) complete.arrived.variants[0].members.clear();
  }
  return complete;
}

std::vector<Merge::Complete> Merge::take_complete() {
  if (std::exchange(all_touched_, false)) touch_all();
  std::vector<Complete> ready;
  ready.reserve(touched_.size());
  for (const std::string* key : std::exchange(touched_, {})) {
    auto found = entries_.find(*key);
    found->second.touched = false;
    if (!complete(found->second)) continue;
    ready.push_back(finish(found->second));
    if (!named_below_.empty()) named_below_.erase(*key);
    if (!to_name_.empty()) to_name_.erase(*key);
    erase(found);
  }
  return ready;
}

// After those that were touched in any case, in an order that does not depend on the hash table.
void Merge::touch_all() {
  std::map<std::string_view, const std::string*> rest;
  for (auto& [key, entry] : entries_) {
    if (!std::exchange(entry.touched, true)) rest.emplace(key, &key);
  }
  for (const auto& [name, key] : rest) touched_.push_back(key);
}

void Merge::expire_stalled(Time limit) {
  std::erase_if(named_below_, [&](const auto& named) { return named.second.last < limit; });
}

void Merge::note_stalled(size_t source, const Stalled& stalled, Time since, Time now) {
  Below& below = named_below_.try_emplace(stalled.key, Below{{}, since, now}).first->second;
  below.missing[source] = stalled.missing;
  below.last = now;
  to_name_.insert(stalled.key);
}

Stalled Merge::stalled(const std::string& key, const Entry* entry) const {
  Stalled report{key, {}};
  auto below = named_below_.find(key);
  for (size_t source = 0; source <= self(); ++source) {
    if (entry != nullptr && entry->ways[source] != Way::kNone) continue;
    if (exempt(source)) continue;
    std::vector<int> missing = members_at(source);
    if (below != named_below_.end() && below->second.missing.contains(source)) {
      missing = below->second.missing.at(source);
    }
    report.missing.insert(report.missing.end(), missing.begin(), missing.end());
  }
  std::sort(report.missing.begin(), report.missing.end());
  return report;
}

std::vector<std::pair<Stalled, Time>> Merge::take_stalled(Time limit, Time now) {
  for (auto& [key, entry] : entries_) {
    if (entry.named <= limit) to_name_.insert(key);
  }
  std::vector<std::pair<Stalled, Time>> all;
  for (const std::string& key : std::exchange(to_name_, {})) {
    auto found = entries_.find(key);
    Entry* entry = found == entries_.end() ? nullptr : &found->second;
    if (entry != nullptr) entry->named = now;
    all.emplace_back(stalled(key, entry), entry == nullptr ? limit : entry->since);
  }
  return all;
}

std::vector<Stalled> Merge::older_than(Time limit) const {
  std::map<std::string, Stalled> all;
  for (const auto& [key, entry] : entries_) {
    if (entry.since <= limit) all.emplace(key, stalled(key, &entry));
  }
  for (const auto& [key, below] : named_below_) {
    if (below.since > limit) continue;
    const auto entry = entries_.find(key);
    all.emplace(key, stalled(key, entry == entries_.end() ? nullptr : &entry->second));
  }
  std::vector<Stalled> list;
  for (auto& [key, report] : all) list.push_back(std::move(report));
  return list;
}

Merge::Oldest Merge::oldest() const {
  Oldest oldest;
  for (const auto& [key, entry] : entries_) {
    oldest.since = std::min(oldest.since, entry.since);
    oldest.named = std::min(oldest.named, entry.named);
  }
  for (const auto& [key, below] : named_below_) oldest.since = std::min(oldest.since, below.since);
  return oldest;
}

std::set<int> Merge::awaited() const {
  std::set<int> members;
  for (const auto& [key, entry] : entries_) {
    for (size_t source = 0; source < self(); ++source) {
      const Way way = entry.ways[source];
      if (way == Way::kAgain || (way == Way::kNone && !exempt(source))) members.insert(tree_.children[source]);
    }
  }
  return members;
}

std::set<int> Merge::not_joined() const {
  std::set<int> members;
  for (size_t source = 0; source < self(); ++source) {
    if (!exempt(source)) members.insert(tree_.children[source]);
  }
  return members;
}

}  // namespace horo::engine
