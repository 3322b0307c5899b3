// What all members remember of units that were agreed upon, so that next time a number says it all.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "horo/engine/tensor.h"

namespace horo::engine {

/// The same on all members after the same messages. Numbers begin at 1, rise, and are never used again: a number that
/// is on its way while the root forgets it cannot be taken for another unit.
class Cache {
 public:
  /// Null for what is not known. Lives until it is forgotten.
  const Unit* find(uint32_t id) const;
  UnitPtr share(uint32_t id) const;
  /// The number under which a unit of this name is known, or 0.
  uint32_t id_of(const std::string& key) const;
  /// Also in the place of an equal one.
  void put(uint32_t id, UnitPtr unit);
  void forget(uint32_t id);
  size_t size() const { return units_.size(); }

 private:
  std::unordered_map<uint32_t, UnitPtr> units_;
  std::unordered_map<std::string, uint32_t> ids_;
};

/// The root's choice of what to keep: the least recently used goes first.
class Recency {
 public:
  explicit Recency(size_t capacity) : capacity_(capacity) {}

  size_t capacity() const { return capacity_; }
  void touch(uint32_t id);
  void remove(uint32_t id);
  /// A number for a new unit.
  uint32_t add();
  /// The oldest beyond the capacity that `busy` does not hold back; they are removed.
  template <class Busy>
  std::vector<uint32_t> surplus(const Busy& busy);

 private:
  size_t capacity_;
  uint32_t last_ = 0;
  std::list<uint32_t> order_;  ///< The oldest first.
  std::unordered_map<uint32_t, std::list<uint32_t>::iterator> places_;
};

template <class Busy>
std::vector<uint32_t> Recency::surplus(const Busy& busy) {
  std::vector<uint32_t> gone;
  for (auto at = order_.begin(); at != order_.end() && order_.size() > capacity_;) {
    const uint32_t id = *at++;
    if (busy(id)) continue;
    gone.push_back(id);
    remove(id);
  }
  return gone;
}

}  // namespace horo::engine
