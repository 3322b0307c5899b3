// A hash table for what comes and goes all the time.
#pragma once

#include <cstddef>
#include <unordered_map>
#include <utility>
#include <vector>

namespace horo {

/// Keeps the nodes of what was erased for what comes next, so that in the long run nothing is allocated. Not more than
/// kMostSpare are kept.
template <class Key, class Value>
class RecycledMap {
  using Map = std::unordered_map<Key, Value>;

 public:
  static constexpr size_t kMostSpare = 4096;
  using iterator = typename Map::iterator;
  using const_iterator = typename Map::const_iterator;

  iterator begin() { return map_.begin(); }
  iterator end() { return map_.end(); }
  const_iterator begin() const { return map_.begin(); }
  const_iterator end() const { return map_.end(); }
  iterator find(const Key& key) { return map_.find(key); }
  const_iterator find(const Key& key) const { return map_.find(key); }
  bool contains(const Key& key) const { return map_.contains(key); }
  size_t size() const { return map_.size(); }
  bool empty() const { return map_.empty(); }

  /// Where `key` is, and whether it is new. A new value holds what an erased one was left with, memory included: the
  /// caller sets it as a whole.
  std::pair<iterator, bool> get(const Key& key) {
    if (spare_.empty()) return map_.try_emplace(key);
    spare_.back().key() = key;
    auto inserted = map_.insert(std::move(spare_.back()));
    if (inserted.inserted) {
      spare_.pop_back();
    } else {
      spare_.back() = std::move(inserted.node);
    }
    return {inserted.position, inserted.inserted};
  }

  /// Whoever erases lets go of what the value should not hold on to.
  void erase(iterator at) {
    if (spare_.size() < kMostSpare) {
      spare_.push_back(map_.extract(at));
    } else {
      map_.erase(at);
    }
  }
  void erase(const Key& key) {
    if (iterator found = map_.find(key); found != map_.end()) erase(found);
  }
  void clear() { map_.clear(); }
  size_t spare() const { return spare_.size(); }

 private:
  Map map_;
  std::vector<typename Map::node_type> spare_;
};

}  // namespace horo
