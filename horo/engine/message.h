// What travels along the tree: upward what is ready, downward what is to be done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "horo/base/status.h"
#include "horo/engine/tensor.h"
#include "horo/engine/tuning.h"

namespace horo::engine {

/// What some members ask for. `members` is empty when all below the sender do.
struct Variant {
  Unit unit;
  std::vector<int> members;
  friend bool operator==(const Variant&, const Variant&) = default;
};

/// A unit that every member below the sender has handed in; with several variants they do not agree.
struct Arrived {
  std::vector<Variant> variants;
  bool partial = false;  ///< Somebody below has joined and gave nothing.
  friend bool operator==(const Arrived&, const Arrived&) = default;
};

/// Members below the sender that have not handed in a unit for long.
struct Stalled {
  std::string key;
  std::vector<int> missing;
  friend bool operator==(const Stalled&, const Stalled&) = default;
};

/// From a member to its parent.
struct Up {
  uint64_t heard = 0;             ///< Messages of the root that the sender had heard.
  bool waiting = false;           ///< A thread of somebody below sleeps until something is done.
  std::vector<uint32_t> known;    ///< Units that all below have handed in, by their number in the cache; rising.
  std::vector<uint32_t> partial;  ///< The same, where somebody has joined and gave nothing; rising.
  std::vector<Arrived> arrived;   ///< The same, in full.
  std::vector<int> joined;        ///< In the order in which they did.
  std::vector<Stalled> stalled;

  bool empty() const {
    return known.empty() && partial.empty() && arrived.empty() && joined.empty() && stalled.empty();
  }
  friend bool operator==(const Up&, const Up&) = default;
};

/// One unit of a batch: known by its number, or given in full (and put into the cache if `id` is not 0).
struct Item {
  uint32_t id = 0;
  std::optional<Unit> unit;
  friend bool operator==(const Item&, const Item&) = default;
};

/// Units that are run as one operation.
struct Batch {
  std::vector<Item> items;
  friend bool operator==(const Batch&, const Batch&) = default;
};

struct Failure {
  std::string key;  ///< Of the unit that fails on whoever has handed it in.
  std::string message;
  friend bool operator==(const Failure&, const Failure&) = default;
};

/// From the root to everybody; carried out in the order of the fields.
struct Down {
  std::vector<uint32_t> forgotten;  ///< Numbers that leave the cache.
  std::vector<Failure> failures;
  std::optional<Tuning> tuning;  ///< From these batches on.
  std::vector<Batch> batches;
  std::optional<int> all_joined;     ///< The last member that joined; all have.
  std::optional<std::string> abort;  ///< Why nothing goes on.

  bool empty() const {
    return forgotten.empty() && failures.empty() && !tuning && batches.empty() && !all_joined && !abort;
  }
  friend bool operator==(const Down&, const Down&) = default;
};

/// Units that a cache may know (HORO_CACHE_CAPACITY), and more than its surplus can be at any time.
inline constexpr size_t kMostCached = 1 << 20;
inline constexpr size_t kLongestMessage = 64 << 20;
inline constexpr Duration kLongestWindow = std::chrono::hours(1);

std::vector<std::byte> encode(const Up& up);
std::vector<std::byte> encode(const Down& down);
/// kCorrupt for what encode() does not write among `members`.
Result<Up> decode_up(std::span<const std::byte> bytes, int members);
Result<Down> decode_down(std::span<const std::byte> bytes, int members);

}  // namespace horo::engine
