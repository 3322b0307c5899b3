#include "horo/engine/cache.h"

namespace horo::engine {

const Unit* Cache::find(uint32_t id) const {
  auto found = units_.find(id);
  return found == units_.end() ? nullptr : found->second.get();
}

UnitPtr Cache::share(uint32_t id) const {
  auto found = units_.find(id);
  return found == units_.end() ? nullptr : found->second;
}

uint32_t Cache::id_of(const std::string& key) const {
  auto found = ids_.find(key);
  return found == ids_.end() ? 0 : found->second;
}

void Cache::put(uint32_t id, UnitPtr unit) {
  ids_[unit->key()] = id;
  units_[id] = std::move(unit);
}

void Cache::forget(uint32_t id) {
  auto found = units_.find(id);
  if (found == units_.end()) return;
  auto name = ids_.find(found->second->key());
  if (name != ids_.end() && name->second == id) ids_.erase(name);
  units_.erase(found);
}

void Recency::touch(uint32_t id) {
  auto found = places_.find(id);
  if (found != places_.end()) order_.splice(order_.end(), order_, found->second);
}

void Recency::remove(uint32_t id) {
  auto found = places_.find(id);
  if (found == places_.end()) return;
  order_.erase(found->second);
  places_.erase(found);
}

uint32_t Recency::add() {
  order_.push_back(++last_);
  places_[last_] = std::prev(order_.end());
  return last_;
}

}  // namespace horo::engine
