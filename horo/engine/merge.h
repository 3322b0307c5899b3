// What has come from this rank and from below, until all of it is there.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "horo/base/deadline.h"
#include "horo/base/recycled_map.h"
#include "horo/engine/cache.h"
#include "horo/engine/message.h"
#include "horo/engine/tree.h"

namespace horo::engine {

/// Pure. A source is a child's place in the tree, or the number of children for this rank itself.
class Merge {
 public:
  Merge(const Tree& tree, const Cache& cache);

  size_t self() const { return tree_.children.size(); }

  /// Everybody at `source` hands in a unit, by its number. Whoever sends a number that was forgotten meanwhile sends
  /// the whole unit when it learns of that; until then the unit is not complete, even if the sender has joined since.
  void add_known(size_t source, uint32_t id, bool partial, Time now);
  void add(size_t source, const Arrived& arrived, Time now);
  void join(int member);
  bool joined(int member) const { return joined_.contains(member); }
  const std::set<int>& joined() const { return joined_; }
  void clear_joined() { joined_.clear(); }
  /// Before the cache forgets, by message `heard` of the root: what came by this number must come again in full, also
  /// where it was passed on already.
  void forget(uint32_t id, uint64_t heard, Time now);
  /// Whether anything must still come again.
  bool owed() const;
  /// All children have heard so many messages of the root: they use no number that those have forgotten.
  void all_heard(uint64_t heard);
  /// A unit that is answered: nothing of it is waited for any more.
  void drop(const std::string& key);
  /// Somebody below has waited for a unit since then, and says so from time to time as long as it does.
  void note_stalled(size_t source, const Stalled& stalled, Time since, Time now);
  /// What nobody has said so of since `limit` is not waited for any more.
  void expire_stalled(Time limit);

  struct Complete {
    uint32_t id = 0;  ///< 0: in full.
    Arrived arrived;
  };
  /// Everything that has become complete; it is forgotten here.
  std::vector<Complete> take_complete();

  /// Units that are waited for since before `limit` and were not named since, or that somebody below has named.
  std::vector<std::pair<Stalled, Time>> take_stalled(Time limit, Time now);
  /// Those waited for, here or below, since before `limit`.
  std::vector<Stalled> older_than(Time limit) const;
  /// Something below was named and is to be passed on.
  bool has_stalled() const { return !to_name_.empty(); }
  /// When the oldest came, here or below; and, of those here, when one was named last or came. Time::max() for nothing.
  struct Oldest {
    Time since = Time::max(), named = Time::max();
  };
  Oldest oldest() const;
  /// Children that something is waited for from.
  std::set<int> awaited() const;
  /// Children that have not joined, or have such below them.
  std::set<int> not_joined() const;
  bool busy(const std::string& key) const { return entries_.contains(key); }
  /// Nothing is waited for, here or below.
  bool idle() const { return entries_.empty() && named_below_.empty(); }
  size_t size() const { return entries_.size(); }

 private:
  /// kAgain: by a number that was forgotten; it will come in full.
  enum class Way : uint8_t { kNone, kById, kInFull, kAgain };
  struct Entry {
    uint32_t id = 0;
    bool partial = false;
    std::vector<Way> ways;
    std::vector<Variant> variants;
    Time since;
    Time named;            ///< When it was last reported as stalled, or `since`.
    bool touched = false;  ///< It may have become complete.
  };

  using Entries = RecycledMap<std::string, Entry>;

  Entry& entry(const std::string& key, Time now);
  void erase(Entries::iterator at);
  void touch_all();
  bool exempt(size_t source) const;
  bool complete(const Entry& entry) const;
  std::vector<int> members_at(size_t source) const;
  void add_variant(Entry& entry, const Variant& variant, const std::vector<int>& members);
  Complete finish(Entry& entry);
  Stalled stalled(const std::string& key, const Entry* entry) const;

  const Tree& tree_;
  const Cache& cache_;
  std::set<int> joined_;
  Entries entries_;
  std::vector<const std::string*> touched_;  ///< Keys of entries, in the order in which they were.
  bool all_touched_ = false;                 ///< Somebody joined: any may have.
  struct Forgotten {
    std::string key;
    uint64_t heard = 0;
  };
  std::unordered_map<uint32_t, Forgotten> forgotten_;  ///< Numbers that children may still use.
  /// Sources of what was passed on by number and is not answered yet: by then they may have joined.
  RecycledMap<uint32_t, std::vector<Way>> passed_;
  struct Below {
    std::map<size_t, std::vector<int>> missing;  ///< As the sources say.
    Time since, last;                            ///< Waited for, and said so.
  };
  std::map<std::string, Below> named_below_;
  std::set<std::string> to_name_;
};

}  // namespace horo::engine
